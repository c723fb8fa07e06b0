// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"
#include "runtime/data/Vocabulary.h"

#include <charconv>

namespace kiln {

namespace {

struct LabelledSentence {
  int32_t label;
  std::string_view sentence;
};

constexpr int32_t marks = Vocabulary::unknown + 1;

/// The lines of a file, each `label<TAB>sentence`.
struct TsvFile {
  ByteSource source;
  std::vector<LabelledSentence> lines;

  WordCounts countWords() const {
    WordCounts words;
    for (const LabelledSentence &line : lines)
      words.add(line.sentence);
    return words;
  }
};

Status rejectLine(const std::string &path, const LineReader &lines,
                  const std::string &found) {
  return rejectData(path + ":" + std::to_string(lines.number()), found);
}

Expected<TsvFile> openFile(const std::string &path, uint64_t classes) {
  Expected<ByteSource> source = ByteSource::open(path);
  if (!source.ok())
    return source.status();
  TsvFile file{std::move(*source), {}};
  for (LineReader lines(asText(file.source.bytes())); lines.next();) {
    std::string_view line = lines.line();
    if (line.empty())
      continue;
    size_t tab = line.find('\t');
    if (tab == line.npos)
      return rejectLine(path, lines,
                        "found " + quoteBytes(line) +
                            " without a tab, wanted a label, a tab and a "
                            "sentence");
    std::string_view text = line.substr(0, tab);
    uint64_t label = 0;
    auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), label);
    if (error != std::errc() || end != text.data() + text.size() ||
        label >= classes)
      return rejectLine(path, lines,
                        "found the label " + quoteBytes(text) +
                            ", wanted an integer from 0 to " +
                            std::to_string(classes - 1));
    std::string_view sentence = line.substr(tab + 1);
    if (!WordReader(sentence).next())
      return rejectLine(path, lines, "found a sentence without words");
    file.lines.push_back({static_cast<int32_t>(label), sentence});
  }
  if (file.lines.empty())
    return rejectData(path, "holds no samples");
  return file;
}

/// Sentences as ids, truncated to the model's sequence length.
class TsvDataset : public Dataset {
public:
  TsvDataset(const TsvFile &file, const Vocabulary &vocabulary,
             uint64_t sequence)
      : Dataset(file.source.path(),
                {{"tokens", sequence}, {"length", 1}, {"label", 1}}),
        vocabulary_(vocabulary.print()) {
    for (const LabelledSentence &line : file.lines) {
      labels_.push_back(line.label);
      starts_.push_back(tokens_.size());
      WordReader words(line.sentence);
      while (tokens_.size() - starts_.back() < sequence && words.next())
        tokens_.push_back(vocabulary.find(words.word()));
    }
    starts_.push_back(tokens_.size());
  }

  std::span<const int32_t> tokens() const { return tokens_; }

  uint64_t samples() const override { return labels_.size(); }
  std::string_view vocabulary() const override { return vocabulary_; }

  Status write(const artifact::Input &input, SampleId sample,
               std::byte *target) const override {
    std::string_view name = input.name()->string_view();
    uint64_t start = starts_[sample.index];
    uint64_t length = starts_[sample.index + 1] - start;
    IntegerTarget integers(input, target);
    if (name == "tokens") {
      integers.copy(0, std::span(tokens_).subspan(start, length));
      integers.fill(length, sampleElements(input), Vocabulary::padding);
    } else {
      integers.set(0, name == "length" ? static_cast<int64_t>(length)
                                       : labels_[sample.index]);
    }
    return Status();
  }

private:
  std::string vocabulary_;
  std::vector<int32_t> tokens_;  // of all samples, concatenated
  std::vector<uint64_t> starts_; // one more than samples
  std::vector<int32_t> labels_;
};

/// The ids are those of the training file, whatever file is read, unless a file
/// has them.
Expected<Vocabulary> findVocabulary(const artifact::Data &data,
                                    const TsvFile &file) {
  if (const flatbuffers::String *path = data.vocabulary_path();
      path && path->size() != 0)
    return Vocabulary::open(path->str(), marks, data.vocabulary());
  if (file.source.path() == data.path()->string_view())
    return Vocabulary(file.countWords(), marks, data.vocabulary());
  Expected<TsvFile> training = openFile(data.path()->str(), data.classes());
  if (!training.ok())
    return training.status();
  Vocabulary vocabulary(training->countWords(), marks, data.vocabulary());
  if (Status status = training->source.check(); !status.ok())
    return status;
  return vocabulary;
}

} // namespace

Expected<std::unique_ptr<Dataset>> openTsv(const DataSource &source) {
  const artifact::Data &data = source.settings;
  if (data.sequence() == 0 || data.classes() == 0 || data.vocabulary() <= marks)
    return rejectData(source.path,
                      "sequence, classes or vocabulary is missing");
  Expected<TsvFile> file = openFile(source.path, data.classes());
  if (!file.ok())
    return file.status();
  Expected<Vocabulary> vocabulary = findVocabulary(data, *file);
  if (!vocabulary.ok())
    return vocabulary.status();
  auto dataset =
      std::make_unique<TsvDataset>(*file, *vocabulary, data.sequence());
  if (Status status = file->source.check(); !status.ok())
    return status;
  if (Status status =
          vocabulary->check(source.path, dataset->tokens(), source.warn);
      !status.ok())
    return status;
  return std::unique_ptr<Dataset>(std::move(dataset));
}

} // namespace kiln
