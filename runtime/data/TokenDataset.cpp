// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"

#include <algorithm>

namespace kiln {

using artifact::ElementType;

namespace {

Status reject(const std::string &path, const std::string &found) {
  return Status(Code::inputRejected, "data file " + path + ": " + found);
}

/// Sample i is tokens [i * sequence, (i + 1) * sequence), its labels the same
/// one further on. `Token` is how the file stores an id.
template <typename Token> class TokenDataset : public Dataset {
public:
  TokenDataset(ByteSource source, uint64_t sequence)
      : source_(std::move(source)), sequence_(sequence),
        tokens_(reinterpret_cast<const Token *>(source_.bytes().data()),
                source_.bytes().size() / sizeof(Token)) {}

  uint64_t samples() const override {
    return tokens_.empty() ? 0 : (tokens_.size() - 1) / sequence_;
  }

  Status checkTokens(uint64_t vocabulary) const {
    if (samples() == 0)
      return reject(source_.path(), "has " + std::to_string(tokens_.size()) +
                                        " tokens, one sample takes " +
                                        std::to_string(sequence_ + 1));
    // The maximum first: it is a loop without branches, ten times as fast as
    // the search.
    Token greatest = 0;
    for (Token token : tokens_)
      greatest = std::max(greatest, token);
    if (vocabulary == 0 || greatest < vocabulary)
      return Status();
    auto found = std::find_if(tokens_.begin(), tokens_.end(),
                              [=](Token token) { return token >= vocabulary; });
    return reject(source_.path(),
                  "token " + std::to_string(found - tokens_.begin()) +
                      " has id " + std::to_string(*found) +
                      ", which is not below the vocabulary of " +
                      std::to_string(vocabulary));
  }

  Status checkInput(const artifact::Input &input) const override {
    std::string_view name = input.name()->string_view();
    if (name != "tokens" && name != "labels")
      return rejectInput(input, "tokens, labels");
    if (sampleElements(input) != sequence_)
      return reject(source_.path(),
                    "input '" + input.name()->str() + "' wants " +
                        std::to_string(sampleElements(input)) +
                        " tokens per sample, the data's sequence is " +
                        std::to_string(sequence_));
    ElementType type = input.element_type();
    if (type != ElementType::i32 && type != ElementType::i64)
      return reject(source_.path(), "input '" + input.name()->str() +
                                        "' has element type " +
                                        artifact::EnumNameElementType(type) +
                                        ", wanted i32 or i64");
    return Status();
  }

  void write(const artifact::Input &input, uint64_t sample,
             std::byte *target) const override {
    bool isLabel = input.name()->string_view() == "labels";
    const Token *first = tokens_.data() + sample * sequence_ + isLabel;
    if (input.element_type() == ElementType::i64)
      std::copy_n(first, sequence_, reinterpret_cast<int64_t *>(target));
    else
      std::copy_n(first, sequence_, reinterpret_cast<int32_t *>(target));
  }

private:
  ByteSource source_;
  uint64_t sequence_;
  std::span<const Token> tokens_;
};

template <typename Token>
Expected<std::unique_ptr<Dataset>> create(ByteSource source,
                                          const artifact::Data &data) {
  if (source.bytes().size() % sizeof(Token) != 0)
    return reject(source.path(), "has " +
                                     std::to_string(source.bytes().size()) +
                                     " bytes, not a multiple of a token's " +
                                     std::to_string(sizeof(Token)));
  auto dataset =
      std::make_unique<TokenDataset<Token>>(std::move(source), data.sequence());
  if (Status status = dataset->checkTokens(data.vocabulary()); !status.ok())
    return status;
  return std::unique_ptr<Dataset>(std::move(dataset));
}

} // namespace

Expected<std::unique_ptr<Dataset>> openTokens(const artifact::Data &data) {
  std::string path = data.path()->str();
  if (data.sequence() == 0)
    return reject(path, "sequence is 0");
  Expected<ByteSource> source = ByteSource::open(path);
  if (!source.ok())
    return source.status();
  if (data.kind()->string_view() == "text") {
    std::string tokenizer = data.tokenizer() ? data.tokenizer()->str() : "";
    if (!tokenizer.empty() && tokenizer != "bytes")
      return reject(path, "tokenizer '" + tokenizer + "' is not 'bytes'");
    return create<uint8_t>(std::move(*source), data);
  }
  if (data.width() == 2)
    return create<uint16_t>(std::move(*source), data);
  if (data.width() == 4)
    return create<uint32_t>(std::move(*source), data);
  return reject(path, "tokens of " + std::to_string(data.width()) +
                          " bytes, wanted 2 or 4");
}

} // namespace kiln
