// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/data/Datasets.h"

namespace kiln::test {

using Numbers = std::vector<int32_t>;

static DataT tsvData(const std::string &path) {
  DataT data;
  data.kind = "tsv";
  data.path = path;
  data.sequence = 4;
  data.vocabulary = 100;
  data.classes = 5;
  return data;
}

TEST(TsvDataset, ReadsLabelsAndSentences) {
  // Ids: 2 = good, 3 = film, 4 = a, 5 = not, ...
  TemporaryFile file("4\tA GOOD film\r\n\n0\tnot good\n2\tfilm film good good "
                     "good\n");
  auto dataset = open(tsvData(file.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ((*dataset)->samples(), 3u);
  EXPECT_EQ(read(**dataset, "tokens", {4}, {0, 0}), (Numbers{4, 2, 3, 0}));
  EXPECT_EQ(read(**dataset, "tokens", {4}, {7, 1}), (Numbers{5, 2, 0, 0}));
  EXPECT_EQ(read(**dataset, "tokens", {4}, {0, 2}), (Numbers{3, 3, 2, 2}));
  EXPECT_EQ(read(**dataset, "length", {}, {0, 0}), Numbers{3});
  EXPECT_EQ(read(**dataset, "length", {}, {0, 2}), Numbers{4});
  EXPECT_EQ(read(**dataset, "label", {}, {0, 0}), Numbers{4});
  EXPECT_EQ(read(**dataset, "label", {}, {0, 1}), Numbers{0});
  PackedInput wide(input("tokens", ElementType::i64, {4}));
  ASSERT_TRUE((*dataset)->checkInput(*wide).ok());
  int64_t ids[4];
  ASSERT_TRUE((*dataset)
                  ->write(*wide, {0, 1}, reinterpret_cast<std::byte *>(ids))
                  .ok());
  EXPECT_EQ((std::vector<int64_t>(ids, ids + 4)),
            (std::vector<int64_t>{5, 2, 0, 0}));
}

// Other ids than in training would make the held-out loss mean nothing.
TEST(TsvDataset, HeldOutDataHasTheIdsOfTheTrainingData) {
  TemporaryFile training("0\ta b\n1\tb\n"), other("1\tc a\n0\tc b c\n");
  EvaluationT heldOut;
  heldOut.path = other.path();
  auto dataset = openHeldOut(tsvData(training.path()), heldOut);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ(read(**dataset, "tokens", {4}, {0, 0}), (Numbers{1, 3, 0, 0}));
  EXPECT_EQ(read(**dataset, "tokens", {4}, {0, 1}), (Numbers{1, 2, 1, 0}));
  TemporaryFile bad("1\ta\n5\tb\n");
  heldOut.path = bad.path();
  EXPECT_NE(openHeldOut(tsvData(training.path()), heldOut)
                .status()
                .message()
                .find(bad.path() + ":2: found the label '5'"),
            std::string::npos);
}

// A sample that is trained on and evaluated would be known by heart.
TEST(TsvDataset, EndOfTheDataIsHeldOut) {
  TemporaryFile file("0\ta\n1\tb\n2\tc\n3\td\n4\te\n");
  EvaluationT heldOut;
  heldOut.fraction = 0.25;
  DataT data = tsvData(file.path());
  auto rest = openRest(data, heldOut), end = openHeldOut(data, heldOut);
  ASSERT_TRUE(rest.ok() && end.ok());
  EXPECT_EQ((*rest)->samples(), 3);
  EXPECT_EQ((*end)->samples(), 2);
  EXPECT_EQ(read(**rest, "label", {}, {0, 2}), Numbers{2});
  EXPECT_EQ(read(**end, "label", {}, {0, 0}), Numbers{3});
  EXPECT_EQ(read(**end, "label", {}, {0, 1}), Numbers{4});
  heldOut.fraction = 0.9;
  EXPECT_NE(openRest(data, heldOut)
                .status()
                .message()
                .find(file.path() + ": has 5 samples; to hold out"),
            std::string::npos);
}

// Words keep their ids when the data are others.
TEST(TsvDataset, TakesAGivenVocabulary) {
  TemporaryFile first("0\ta a a b b c\n"), second("1\tc b d\n");
  auto training = open(tsvData(first.path()));
  ASSERT_TRUE(training.ok()) << training.status().message();
  EXPECT_EQ((*training)->vocabulary(), "[PAD]\n[UNK]\na\nb\nc\n");
  TemporaryFile words{std::string((*training)->vocabulary())};
  DataT data = tsvData(second.path());
  data.vocabulary_path = words.path();
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ(read(**dataset, "tokens", {4}, {0, 0}), (Numbers{4, 3, 1, 0}));
  EXPECT_EQ((*dataset)->vocabulary(), (*training)->vocabulary());
  EvaluationT heldOut;
  heldOut.path = first.path();
  auto evaluation = openHeldOut(data, heldOut);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status().message();
  EXPECT_EQ(read(**evaluation, "tokens", {4}, {0, 0}), (Numbers{2, 2, 2, 3}));
  data.vocabulary_path = "/nonexistent/words";
  expectRejected(data, "data file /nonexistent/words: No such file");
}

TEST(TsvDataset, KeepsTheVocabularysSize) {
  TemporaryFile file("0\ta a a b b c\n");
  DataT data = tsvData(file.path());
  data.sequence = 6;
  data.vocabulary = 4;
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ(read(**dataset, "tokens", {6}, {0, 0}),
            (Numbers{2, 2, 2, 3, 3, 1}));
}

TEST(TsvDataset, RejectsBadFiles) {
  auto expect = [](const std::string &text, const std::string &message) {
    TemporaryFile file(text);
    expectRejected(tsvData(file.path()), message);
  };
  expect("", "is empty");
  expect("\n\r\n", "holds no samples");
  expect("1\tgood\n5\tbad\n",
         ":2: found the label '5', wanted an integer from 0 to 4");
  expect("-1\tgood\n", ":1: found the label '-1'");
  expect("1.5\tgood\n", ":1: found the label '1.5'");
  expect("\tgood\n", ":1: found the label ''");
  expect("99999999999999999999\tgood\n", ":1: found the label '9999");
  expect("1\ta\n\n1 good\n", ":3: found '1 good' without a tab");
  expect("1\t \t\n", ":1: found a sentence without words");
  expect("\xff\tgood\n", ":1: found the label '\\xff'");
}

TEST(TsvDataset, RejectsInputsThatDoNotFit) {
  TemporaryFile file("0\ta\n");
  expectInputsRejected(tsvData(file.path()),
                       {input("image", ElementType::i32, {4}),
                        input("tokens", ElementType::f32, {4}),
                        input("tokens", ElementType::i32, {5}),
                        input("length", ElementType::i32, {4})});
}

} // namespace kiln::test
