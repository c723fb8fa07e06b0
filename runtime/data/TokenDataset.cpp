// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"

#include <algorithm>

namespace kiln {

namespace {

/// Sample i is tokens [i * sequence, (i + 1) * sequence), its labels the same
/// shifted by one. `Token` is the file's type of an id.
template <typename Token> class TokenDataset : public Dataset {
public:
  TokenDataset(ByteSource source, uint64_t sequence)
      : Dataset(source.path(), {{"tokens", sequence}, {"labels", sequence}}),
        source_(std::move(source)), sequence_(sequence),
        tokens_(reinterpret_cast<const Token *>(source_.bytes().data()),
                source_.bytes().size() / sizeof(Token)) {}

  uint64_t samples() const override {
    return tokens_.empty() ? 0 : (tokens_.size() - 1) / sequence_;
  }

  Status checkTokens(uint64_t vocabulary) const {
    if (samples() == 0)
      return reject("has " + std::to_string(tokens_.size()) +
                    " tokens, one sample takes " +
                    std::to_string(sequence_ + 1));
    // The maximum first: a loop without branches, ten times as fast as the
    // search.
    Token greatest = 0;
    for (Token token : tokens_)
      greatest = std::max(greatest, token);
    if (vocabulary == 0 || greatest < vocabulary)
      return Status();
    auto found = std::find_if(tokens_.begin(), tokens_.end(),
                              [=](Token token) { return token >= vocabulary; });
    return reject("token " + std::to_string(found - tokens_.begin()) +
                  " has id " + std::to_string(*found) +
                  ", which is not below the vocabulary of " +
                  std::to_string(vocabulary));
  }

  void write(const artifact::Input &input, SampleId sample,
             std::byte *target) const override {
    bool isLabel = input.name()->string_view() == "labels";
    IntegerTarget(input, target)
        .copy(0,
              tokens_.subspan(sample.index * sequence_ + isLabel, sequence_));
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
    return rejectData(source.path(),
                      "has " + std::to_string(source.bytes().size()) +
                          " bytes, not a multiple of a token's " +
                          std::to_string(sizeof(Token)));
  auto dataset =
      std::make_unique<TokenDataset<Token>>(std::move(source), data.sequence());
  if (Status status = dataset->checkTokens(data.vocabulary()); !status.ok())
    return status;
  return std::unique_ptr<Dataset>(std::move(dataset));
}

} // namespace

Expected<std::unique_ptr<Dataset>> openTokens(const DataSource &source) {
  const artifact::Data &data = source.settings;
  if (data.sequence() == 0)
    return rejectData(source.path, "sequence is 0");
  Expected<ByteSource> bytes = ByteSource::open(source.path);
  if (!bytes.ok())
    return bytes.status();
  if (data.kind()->string_view() == "text") {
    std::string tokenizer = data.tokenizer() ? data.tokenizer()->str() : "";
    if (!tokenizer.empty() && tokenizer != "bytes")
      return rejectData(source.path,
                        "tokenizer '" + tokenizer + "' is not 'bytes'");
    return create<uint8_t>(std::move(*bytes), data);
  }
  if (data.width() == 2)
    return create<uint16_t>(std::move(*bytes), data);
  if (data.width() == 4)
    return create<uint32_t>(std::move(*bytes), data);
  return rejectData(source.path, "tokens of " + std::to_string(data.width()) +
                                     " bytes, wanted 2 or 4");
}

} // namespace kiln
