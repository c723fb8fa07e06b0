// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Vocabulary.h"
#include "test/runtime/data/Datasets.h"

#include <map>
#include <random>
#include <set>

namespace kiln::test {

using Numbers = std::vector<int32_t>;

namespace {

constexpr int32_t pad = 0, unknown = 1, cls = 2, sep = 3, mask = 4, marks = 5;
constexpr int64_t sequence = 32, predictions = 5;

DataT documentData(const std::string &path) {
  DataT data;
  data.kind = "documents";
  data.path = path;
  data.sequence = sequence;
  data.vocabulary = 1000;
  data.predictions = predictions;
  return data;
}

/// Documents whose words name them: no two documents share one.
std::string corpus(int documents, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string text;
  for (int document = 0; document < documents; ++document) {
    unsigned sentences = 2 + random() % 9;
    for (unsigned i = 0; i < sentences; ++i) {
      unsigned words = 1 + random() % 12;
      for (unsigned j = 0; j < words; ++j)
        text += "d" + std::to_string(document) + "x" +
                std::to_string(random() % 6) + " ";
      text += "\n";
    }
    text += "\n";
  }
  return text;
}

struct Sample {
  Numbers tokens, segments, positions, labels;
  int32_t length, next;

  bool operator==(const Sample &) const = default;

  /// The tokens before masking.
  Numbers original() const {
    Numbers result = tokens;
    for (size_t i = 0; i < labels.size(); ++i)
      if (labels[i] >= 0)
        result[static_cast<size_t>(positions[i])] = labels[i];
    return result;
  }
  size_t masked() const {
    return labels.size() -
           static_cast<size_t>(std::count(labels.begin(), labels.end(), -1));
  }
};

Sample readSample(const Dataset &dataset, SampleId id) {
  return {read(dataset, "tokens", {sequence}, id),
          read(dataset, "segments", {sequence}, id),
          read(dataset, "positions", {predictions}, id),
          read(dataset, "labels", {predictions}, id),
          read(dataset, "length", {}, id).front(),
          read(dataset, "next", {}, id).front()};
}

/// The ids of a corpus as the dataset must have them.
Vocabulary vocabularyOf(const std::string &text) {
  WordCounts words;
  words.add(text);
  return Vocabulary(words, marks, 1000);
}

Numbers idsOf(const std::string &text, const Vocabulary &vocabulary) {
  Numbers ids;
  for (WordReader words(text); words.next();)
    ids.push_back(vocabulary.find(words.word()));
  return ids;
}

/// Which document of `corpus` a word of this id is from.
std::map<int32_t, int> documentsOf(const std::string &text) {
  Vocabulary vocabulary = vocabularyOf(text);
  std::map<int32_t, int> documents;
  for (WordReader words(text); words.next();)
    documents[vocabulary.find(words.word())] =
        std::stoi(std::string(words.word().substr(1)));
  return documents;
}

/// The words of a segment before masking.
Numbers segment(const Sample &sample, int32_t number) {
  Numbers tokens = sample.original(), result;
  for (size_t i = 0; i < static_cast<size_t>(sample.length); ++i)
    if (tokens[i] >= marks && sample.segments[i] == number)
      result.push_back(tokens[i]);
  return result;
}

} // namespace

TEST(DocumentDataset, SamplesHaveTheShapeOfBert) {
  TemporaryFile file(corpus(40));
  auto dataset = open(documentData(file.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_GT((*dataset)->samples(), 40u);
  for (uint64_t i = 0; i < (*dataset)->samples(); ++i) {
    Sample sample = readSample(**dataset, {3, i});
    Numbers tokens = sample.original();
    size_t length = static_cast<size_t>(sample.length);
    ASSERT_LE(length, tokens.size());
    EXPECT_EQ(tokens[0], cls);
    EXPECT_EQ(tokens[length - 1], sep);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), sep), 2);
    auto middle = static_cast<size_t>(
        std::find(tokens.begin(), tokens.end(), sep) - tokens.begin());
    EXPECT_GT(middle, 1u) << "the first segment is empty";
    EXPECT_GT(length, middle + 2) << "the second segment is empty";
    for (size_t j = 0; j < tokens.size(); ++j) {
      EXPECT_EQ(sample.segments[j], j > middle && j < length ? 1 : 0);
      EXPECT_EQ(tokens[j] == pad, j >= length);
      EXPECT_NE(tokens[j], unknown);
    }
  }
}

// A sample must not depend on the reader or the time: that makes resumed runs
// exact. A new epoch masks anew.
TEST(DocumentDataset, SamplesArePureFunctions) {
  TemporaryFile file(corpus(40));
  auto one = open(documentData(file.path()), 5);
  auto same = open(documentData(file.path()), 5);
  auto other = open(documentData(file.path()), 6);
  ASSERT_TRUE(one.ok() && same.ok() && other.ok());
  size_t changedByEpoch = 0, changedBySeed = 0;
  uint64_t samples = (*one)->samples();
  EXPECT_EQ((*other)->samples(), samples);
  for (uint64_t i = 0; i < samples; ++i) {
    uint64_t back = samples - 1 - i;
    EXPECT_EQ(readSample(**one, {1, back}), readSample(**same, {1, back}));
    Sample sample = readSample(**one, {1, i});
    changedByEpoch += !(sample == readSample(**one, {2, i}));
    changedBySeed += !(sample == readSample(**other, {1, i}));
  }
  EXPECT_GT(changedByEpoch, samples * 9 / 10);
  EXPECT_GT(changedBySeed, samples * 9 / 10);
}

TEST(DocumentDataset, MasksFifteenPercent) {
  TemporaryFile file(corpus(100));
  auto dataset = open(documentData(file.path()));
  ASSERT_TRUE(dataset.ok());
  double words = 0, masked = 0, marked = 0, kept = 0;
  std::map<int32_t, int> places;
  for (uint64_t epoch = 0; epoch < 10; ++epoch)
    for (uint64_t i = 0; i < (*dataset)->samples(); ++i) {
      Sample sample = readSample(**dataset, {epoch, i});
      words += sample.length - 3;
      masked += static_cast<double>(sample.masked());
      std::set<int32_t> seen;
      for (size_t j = 0; j < sample.masked(); ++j) {
        int32_t at = sample.positions[j];
        int32_t token = sample.tokens[static_cast<size_t>(at)];
        EXPECT_GE(sample.labels[j], marks) << "a mark was masked";
        EXPECT_TRUE(seen.insert(at).second) << "masked twice";
        EXPECT_TRUE(token == mask || token >= marks);
        marked += token == mask;
        kept += token == sample.labels[j];
        if (sample.length == sequence)
          ++places[at];
      }
      for (size_t j = sample.masked(); j < sample.labels.size(); ++j) {
        EXPECT_EQ(sample.positions[j], 0);
        EXPECT_EQ(sample.labels[j], -1);
      }
    }
  EXPECT_NEAR(masked / words, 0.15, 0.01);
  EXPECT_NEAR(marked / masked, 0.8, 0.02);
  EXPECT_NEAR(kept / masked, 0.1, 0.02);
  EXPECT_EQ(places.size(), sequence - 2u) // The second mark moves.
      << "some place is never masked";
}

TEST(DocumentDataset, MasksNoMoreThanAskedFor) {
  TemporaryFile file(corpus(20));
  DataT data = documentData(file.path());
  data.predictions = 2;
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok());
  for (uint64_t i = 0; i < (*dataset)->samples(); ++i) {
    Numbers tokens = read(**dataset, "tokens", {sequence}, {0, i});
    EXPECT_LE(std::count(tokens.begin(), tokens.end(), mask), 2);
  }
}

TEST(DocumentDataset, HalfOfAllPairsJoinTwoDocuments) {
  std::string text = corpus(60);
  TemporaryFile file(text);
  auto dataset = open(documentData(file.path()));
  ASSERT_TRUE(dataset.ok());
  std::map<int32_t, int> documents = documentsOf(text);
  Numbers all = idsOf(text, vocabularyOf(text));
  double joined = 0, samples = 0;
  for (uint64_t epoch = 0; epoch < 10; ++epoch)
    for (uint64_t i = 0; i < (*dataset)->samples(); ++i) {
      Sample sample = readSample(**dataset, {epoch, i});
      Numbers first = segment(sample, 0), second = segment(sample, 1);
      bool isSame = documents[first.back()] == documents[second.front()];
      EXPECT_EQ(sample.next, isSame ? 0 : 1);
      joined += sample.next;
      ++samples;
      if (!isSame)
        continue;
      // The true continuation follows without a gap.
      first.insert(first.end(), second.begin(), second.end());
      EXPECT_NE(std::search(all.begin(), all.end(), first.begin(), first.end()),
                all.end());
    }
  EXPECT_NEAR(joined / samples, 0.5, 0.05);
}

// Where samples are long enough, every sentence of a document that has two is
// in exactly one of them.
TEST(DocumentDataset, EverySentenceIsInOneSample) {
  TemporaryFile file("A one. A two! A three? A four.\n\nb one\nb two\r\n\t\n\n"
                     "alone\n");
  DataT data = documentData(file.path());
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ((*dataset)->samples(), 2u);
  Vocabulary vocabulary = vocabularyOf("a one. a two! a three? a four. b one b "
                                       "two alone");
  std::set<Numbers> firsts;
  for (uint64_t epoch = 0; epoch < 50; ++epoch)
    firsts.insert(segment(readSample(**dataset, {epoch, 0}), 0));
  EXPECT_EQ(firsts,
            (std::set<Numbers>{idsOf("a one.", vocabulary),
                               idsOf("a one. a two!", vocabulary),
                               idsOf("a one. a two! a three?", vocabulary)}));
  for (uint64_t epoch = 0; epoch < 50; ++epoch)
    EXPECT_EQ(segment(readSample(**dataset, {epoch, 1}), 0),
              idsOf("b one", vocabulary));
}

TEST(DocumentDataset, HeldOutDataHasTheIdsOfTheTrainingData) {
  TemporaryFile training(corpus(10)), other("new words\nd1x1 d1x2\n\nd2x1\n");
  EvaluationT heldOut;
  heldOut.path = other.path();
  auto dataset = openHeldOut(documentData(training.path()), heldOut);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ((*dataset)->samples(), 1u);
  Numbers tokens = readSample(**dataset, {0, 0}).original();
  EXPECT_EQ(Numbers(tokens.begin(), tokens.begin() + 4),
            (Numbers{cls, unknown, unknown, sep}));
}

TEST(DocumentDataset, RejectsBadFiles) {
  auto expect = [](const std::string &text, const std::string &message) {
    TemporaryFile file(text);
    expectRejected(documentData(file.path()), message);
  };
  expect("", "is empty");
  expect("\n \n", "holds no words");
  expect("a\nb\n", "has one document");
  expect("a\n\nb\n\nc\n", "has no document of two sentences");
  TemporaryFile file(corpus(3));
  DataT data = documentData(file.path());
  data.sequence = 4;
  expectRejected(data, "too small");
}

} // namespace kiln::test
