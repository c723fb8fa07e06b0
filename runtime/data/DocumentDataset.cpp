// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pairs of sentences with masked words, as BERT is trained on: Devlin et al.,
// "BERT: Pre-training of deep bidirectional transformers" (2019), section 3.1.
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"
#include "runtime/data/Vocabulary.h"
#include "runtime/random/Philox.h"

namespace kiln {

namespace {

constexpr int32_t classMark = 2, separatorMark = 3, maskMark = 4, marks = 5;
/// Of a sample: one at the start and one after each segment.
constexpr uint64_t marksOfSample = 3;

/// A range of sentences, of tokens, ...
struct Range {
  uint64_t begin, end;
  uint64_t size() const { return end - begin; }
};

/// Documents are paragraphs. Their sentences are lines; a paragraph of one line
/// is split after a full stop, exclamation or question mark and a space.
class Corpus {
public:
  Corpus(std::string_view text, const Vocabulary &vocabulary) {
    std::vector<std::string_view> paragraph;
    for (LineReader lines(text); lines.next();) {
      if (WordReader(lines.line()).next())
        paragraph.push_back(lines.line());
      else
        addDocument(paragraph, vocabulary);
    }
    addDocument(paragraph, vocabulary);
  }

  uint64_t documents() const { return documents_.size() - 1; }
  Range sentencesOf(uint64_t document) const {
    return {documents_[document], documents_[document + 1]};
  }
  Range tokensOf(Range sentences) const {
    return {sentences_[sentences.begin], sentences_[sentences.end]};
  }
  int32_t token(uint64_t index) const { return tokens_[index]; }
  std::span<const int32_t> tokens() const { return tokens_; }

private:
  void addDocument(std::vector<std::string_view> &paragraph,
                   const Vocabulary &vocabulary) {
    if (paragraph.empty())
      return;
    if (paragraph.size() == 1)
      addSentences(paragraph.front(), vocabulary);
    else
      for (std::string_view line : paragraph)
        addSentence(line, vocabulary);
    documents_.push_back(sentences_.size() - 1);
    paragraph.clear();
  }

  void addSentences(std::string_view text, const Vocabulary &vocabulary) {
    size_t begin = 0;
    for (size_t i = 0; i + 1 < text.size(); ++i)
      if (std::string_view(".!?").find(text[i]) != text.npos &&
          text[i + 1] == ' ') {
        addSentence(text.substr(begin, i + 1 - begin), vocabulary);
        begin = i + 1;
      }
    addSentence(text.substr(begin), vocabulary);
  }

  void addSentence(std::string_view text, const Vocabulary &vocabulary) {
    for (WordReader words(text); words.next();)
      tokens_.push_back(vocabulary.find(words.word()));
    if (tokens_.size() != sentences_.back())
      sentences_.push_back(tokens_.size());
  }

  std::vector<int32_t> tokens_;
  // Where each begins in the list above, and where the last one ends.
  std::vector<uint64_t> sentences_ = {0};
  std::vector<uint64_t> documents_ = {0};
};

/// Random numbers that depend on seed, epoch and sample alone.
class Draws {
public:
  Draws(uint64_t seed, SampleId sample) {
    PhiloxStream stream(seed, "sentence pairs");
    PhiloxCounter bits =
        philox({static_cast<uint32_t>(sample.index),
                static_cast<uint32_t>(sample.index >> 32),
                static_cast<uint32_t>(sample.epoch),
                static_cast<uint32_t>(sample.epoch >> 32)},
               {stream.key[0] ^ stream.low, stream.key[1] ^ stream.high});
    key_ = {bits[0], bits[1]};
  }

  PhiloxCounter block(uint64_t number) const {
    return philox({static_cast<uint32_t>(number), 0, 0, 0}, key_);
  }

  /// A number below `size`.
  static uint64_t below(uint64_t size, uint32_t bits) {
    return (bits * size) >> 32;
  }

private:
  PhiloxKey key_;
};

/// The tokens of a sample: two ranges of the corpus.
struct Pair {
  Range first, second;
  bool isNext;

  uint64_t words() const { return first.size() + second.size(); }
  uint64_t length() const { return words() + marksOfSample; }
  /// Where a word of the pair stands in the sample.
  uint64_t position(uint64_t word) const {
    return word + (word < first.size() ? 1 : 2);
  }
  /// Where a word of the pair stands in the corpus.
  uint64_t source(uint64_t word) const {
    return word < first.size() ? first.begin + word
                               : second.begin + word - first.size();
  }
};

class DocumentDataset : public Dataset {
public:
  DocumentDataset(std::string path, Corpus corpus, const artifact::Data &data,
                  const Vocabulary &vocabulary, uint64_t seed)
      : Dataset(std::move(path), {{"tokens", data.sequence()},
                                  {"segments", data.sequence()},
                                  {"length", 1},
                                  {"positions", data.predictions()},
                                  {"labels", data.predictions()},
                                  {"next", 1}}),
        corpus_(std::move(corpus)), sequence_(data.sequence()),
        predictions_(data.predictions()), words_(vocabulary.size() - marks),
        vocabulary_(vocabulary.print()), seed_(seed) {
    for (uint64_t i = 0; i < corpus_.documents(); ++i)
      addSamples(i);
  }

  Status check() const {
    if (corpus_.documents() < 2)
      return reject(
          std::string("has ") + (corpus_.documents() ? "one" : "no") +
          " document (a paragraph between blank lines), wanted at least two: "
          "half of all pairs join two of them");
    if (samples_.empty())
      return reject("has no document of two sentences (lines of a paragraph), "
                    "wanted pairs of them");
    return Status();
  }

  std::span<const int32_t> tokens() const { return corpus_.tokens(); }

  uint64_t samples() const override { return samples_.size(); }
  std::string_view vocabulary() const override { return vocabulary_; }

  Status write(const artifact::Input &input, SampleId sample,
               std::byte *target) const override {
    std::string_view name = input.name()->string_view();
    Draws draws(seed_, sample);
    Pair pair = drawPair(sample.index, draws);
    IntegerTarget integers(input, target);
    if (name == "tokens")
      writeTokens(pair, draws, integers);
    else if (name == "segments")
      writeSegments(pair, integers);
    else if (name == "length")
      integers.set(0, static_cast<int64_t>(pair.length()));
    else if (name == "next")
      integers.set(0, pair.isNext ? 0 : 1); // As Hugging Face has it.
    else
      writePredictions(pair, draws, name == "labels", integers);
    return Status();
  }

private:
  /// Consecutive sentences of one document, two at least: a sample's first
  /// segment and its true continuation.
  struct Passage {
    uint64_t document;
    Range sentences;
  };

  uint64_t room() const { return sequence_ - marksOfSample; }

  // A passage ends where it fills a sample. A sentence left over at the end of
  // the document cannot be a pair, so the passage before takes it.
  void addSamples(uint64_t document) {
    Range left = corpus_.sentencesOf(document);
    uint64_t end = left.end;
    size_t before = samples_.size();
    for (uint64_t next = left.begin + 2; next <= end; ++next) {
      Range passage = {left.begin, next};
      if (passage.size() < 2 ||
          (next < end && corpus_.tokensOf(passage).size() < room()))
        continue;
      samples_.push_back({document, passage});
      left.begin = next;
    }
    if (left.begin < end && samples_.size() > before)
      samples_.back().sentences.end = end;
  }

  Pair drawPair(uint64_t index, const Draws &draws) const {
    const Passage &passage = samples_[index];
    PhiloxCounter bits = draws.block(0);
    uint64_t split = passage.sentences.begin + 1 +
                     Draws::below(passage.sentences.size() - 1, bits[0]);
    Range first = corpus_.tokensOf({passage.sentences.begin, split});
    Range second = corpus_.tokensOf({split, passage.sentences.end});
    bool isNext = bits[1] >> 31;
    if (!isNext) {
      uint64_t other = Draws::below(corpus_.documents() - 1, bits[2]);
      Range sentences =
          corpus_.sentencesOf(other + (other >= passage.document));
      sentences.begin += Draws::below(sentences.size(), bits[3]);
      // As long as the true continuation, so that length gives nothing away.
      uint64_t length = second.size();
      second = corpus_.tokensOf(sentences);
      second.end = std::min(second.end, second.begin + length);
    }
    return cut({first, second, isNext});
  }

  // The longer segment is truncated first, and each at its outer end.
  Pair cut(Pair pair) const {
    uint64_t first = pair.first.size(), half = room() / 2;
    uint64_t spare = room() - std::min(room(), first);
    uint64_t second = std::min(pair.second.size(), std::max(spare, half));
    first = std::min(first, room() - second);
    pair.first.begin = pair.first.end - first;
    pair.second.end = pair.second.begin + second;
    return pair;
  }

  /// Calls take(word, id) for each masked word of a pair, in order, with the
  /// id that replaces it.
  template <typename Take>
  void forEachMasked(const Pair &pair, const Draws &draws, Take take) const {
    uint64_t words = pair.words();
    uint64_t wanted = std::max<uint64_t>(1, (words * 15 + 50) / 100);
    wanted = std::min(wanted, predictions_);
    // Selection sampling: each of the remaining words is equally likely to be
    // one of those still wanted.
    for (uint64_t word = 0; word < words && wanted > 0; ++word) {
      PhiloxCounter bits = draws.block(1 + word);
      if (Draws::below(words - word, bits[0]) >= wanted)
        continue;
      --wanted;
      uint64_t choice = Draws::below(10, bits[1]);
      int32_t id =
          choice < 8 ? maskMark
          : choice == 8
              ? marks + static_cast<int32_t>(Draws::below(words_, bits[2]))
              : corpus_.token(pair.source(word));
      take(word, id);
    }
  }

  void writeTokens(const Pair &pair, const Draws &draws,
                   IntegerTarget tokens) const {
    tokens.set(0, classMark);
    for (uint64_t word = 0; word < pair.words(); ++word)
      tokens.set(pair.position(word), corpus_.token(pair.source(word)));
    tokens.set(pair.first.size() + 1, separatorMark);
    tokens.set(pair.length() - 1, separatorMark);
    tokens.fill(pair.length(), sequence_, Vocabulary::padding);
    forEachMasked(pair, draws, [&](uint64_t word, int32_t id) {
      tokens.set(pair.position(word), id);
    });
  }

  void writeSegments(const Pair &pair, IntegerTarget segments) const {
    uint64_t second = pair.first.size() + 2;
    segments.fill(0, second, 0);
    segments.fill(second, pair.length(), 1);
    segments.fill(pair.length(), sequence_, 0);
  }

  void writePredictions(const Pair &pair, const Draws &draws, bool areLabels,
                        IntegerTarget target) const {
    uint64_t slot = 0;
    forEachMasked(pair, draws, [&](uint64_t word, int32_t) {
      target.set(slot++, areLabels ? corpus_.token(pair.source(word))
                                   : static_cast<int64_t>(pair.position(word)));
    });
    target.fill(slot, predictions_, areLabels ? -1 : 0);
  }

  Corpus corpus_;
  uint64_t sequence_;
  uint64_t predictions_;
  uint64_t words_; // of the vocabulary, without marks
  std::string vocabulary_;
  uint64_t seed_;
  std::vector<Passage> samples_;
};

/// The ids are those of the training file, whatever file is read, unless a file
/// has them.
Expected<Vocabulary> findVocabulary(const artifact::Data &data) {
  if (const flatbuffers::String *path = data.vocabulary_path();
      path && path->size() != 0)
    return Vocabulary::open(path->str(), marks, data.vocabulary());
  Expected<ByteSource> training = ByteSource::open(data.path()->str());
  if (!training.ok())
    return training.status();
  WordCounts words;
  for (LineReader lines(asText(training->bytes())); lines.next();)
    words.add(lines.line());
  Vocabulary vocabulary(words, marks, data.vocabulary());
  if (Status status = training->check(); !status.ok())
    return status;
  if (vocabulary.size() == marks)
    return rejectData(training->path(), "holds no words");
  return vocabulary;
}

} // namespace

Expected<std::unique_ptr<Dataset>> openDocuments(const DataSource &source) {
  const artifact::Data &data = source.settings;
  if (data.sequence() < marksOfSample + 2 || data.predictions() == 0 ||
      data.vocabulary() <= marks)
    return rejectData(source.path,
                      "sequence, predictions or vocabulary is too small");
  Expected<Vocabulary> vocabulary = findVocabulary(data);
  if (!vocabulary.ok())
    return vocabulary.status();
  Expected<ByteSource> file = ByteSource::open(source.path);
  if (!file.ok())
    return file.status();
  auto dataset = std::make_unique<DocumentDataset>(
      source.path, Corpus(asText(file->bytes()), *vocabulary), data,
      *vocabulary, source.seed);
  if (Status status = file->check(); !status.ok())
    return status;
  if (Status status = dataset->check(); !status.ok())
    return status;
  if (Status status =
          vocabulary->check(source.path, dataset->tokens(), source.warn);
      !status.ok())
    return status;
  return std::unique_ptr<Dataset>(std::move(dataset));
}

} // namespace kiln
