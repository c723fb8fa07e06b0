// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"

namespace kiln {

namespace {

/// Sample i is tokens [i * sequence, (i + 1) * sequence), its labels the same
/// shifted by one. `Token` is the file's type of an id.
template <typename Token> class TokenDataset : public Dataset {
public:
  TokenDataset(ByteSource source, uint64_t sequence, uint64_t vocabulary)
      : Dataset(source.path(), {{"tokens", sequence}, {"labels", sequence}}),
        source_(std::move(source)), sequence_(sequence),
        vocabulary_(vocabulary),
        tokens_(reinterpret_cast<const Token *>(source_.bytes().data()),
                source_.bytes().size() / sizeof(Token)) {}

  uint64_t samples() const override {
    return tokens_.empty() ? 0 : (tokens_.size() - 1) / sequence_;
  }

  Status checkTokens() const {
    if (samples() == 0)
      return reject("has " + std::to_string(tokens_.size()) +
                    " tokens, one sample takes " +
                    std::to_string(sequence_ + 1));
    if (std::optional<uint64_t> found = findOutside(tokens_, vocabulary_))
      return reject(describe(*found, tokens_[*found]) +
                    (source_.check().ok() ? "" : changedSince));
    return source_.check();
  }

  Status write(const artifact::Input &input, SampleId sample,
               std::byte *target) const override {
    bool isLabel = input.name()->string_view() == "labels";
    uint64_t first = sample.index * sequence_ + isLabel;
    IntegerTarget ids(input, target);
    ids.copy(0, tokens_.subspan(first, sequence_));
    if (std::optional<uint64_t> found = ids.findOutside(sequence_, vocabulary_))
      return reject(describe(first + *found, ids.id(*found)) + changedSince);
    return Status();
  }

  /// Of a file that has changed, an id out of range says more than its time.
  Status checkFiles() const override {
    return source_.check().ok() ? Status() : checkTokens();
  }

private:
  std::string describe(uint64_t position, uint64_t id) const {
    return "token " + std::to_string(position) + " has id " +
           std::to_string(id) + ", which is not below the vocabulary of " +
           std::to_string(vocabulary_);
  }

  ByteSource source_;
  uint64_t sequence_;
  uint64_t vocabulary_; // 0: any id.
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
  auto dataset = std::make_unique<TokenDataset<Token>>(
      std::move(source), data.sequence(), data.vocabulary());
  if (Status status = dataset->checkTokens(); !status.ok())
    return status;
  return std::unique_ptr<Dataset>(std::move(dataset));
}

} // namespace

Expected<std::unique_ptr<Dataset>> openTokens(const DataSource &source) {
  const artifact::Data &data = source.settings;
  if (data.sequence() == 0)
    return rejectData(source.path, "sequence is 0");
  Expected<ByteSource> bytes = ByteSource::open(source.path, source.warn);
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
