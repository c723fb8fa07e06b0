// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Vocabulary.h"
#include "test/runtime/data/Datasets.h"

namespace kiln::test {

TEST(Vocabulary, OrdersByCountThenBytes) {
  WordCounts words;
  words.add("b b b a a c d");
  words.add("a d");
  Vocabulary all(words, 2, 100);
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(all.find("a"), 2);
  EXPECT_EQ(all.find("b"), 3);
  EXPECT_EQ(all.find("d"), 4);
  EXPECT_EQ(all.find("c"), 5);
  EXPECT_EQ(all.find("e"), Vocabulary::unknown);
  Vocabulary some(words, 5, 7);
  EXPECT_EQ(some.size(), 7u);
  EXPECT_EQ(some.find("b"), 6);
  EXPECT_EQ(some.find("d"), Vocabulary::unknown);
}

// Bytes that are no UTF-8 too.
TEST(Vocabulary, AFileKeepsEveryId) {
  WordCounts words;
  words.add("Caf\xc3\xa9 caf\xc3\xa9 \xff, \xff , [ pad ] unk \\");
  for (int32_t marks : {2, 5}) {
    Vocabulary vocabulary(words, marks, 100);
    TemporaryFile file(vocabulary.print());
    Expected<Vocabulary> read = Vocabulary::open(file.path(), marks, 100);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->size(), vocabulary.size());
    EXPECT_EQ(read->print(), vocabulary.print());
    for (const auto &[word, count] : words.counts())
      EXPECT_EQ(read->find(word), vocabulary.find(word));
    EXPECT_EQ(read->find("[UNK]"), Vocabulary::unknown);
  }
}

// The loss falls on one word too.
TEST(Vocabulary, UnknownWordsAreTold) {
  TemporaryFile file("[PAD]\n[UNK]\nthe\nof\n");
  Expected<Vocabulary> vocabulary = Vocabulary::open(file.path(), 2, 9);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  std::vector<std::string> warnings;
  auto check = [&](std::vector<int32_t> ids) {
    return vocabulary->check("data.tsv", ids, [&](const std::string &text) {
      warnings.push_back(text);
    });
  };
  expectRejected(check({1, 1, 1}),
                 "data file data.tsv: none of its 3 words is in the "
                 "vocabulary " +
                     file.path() + ", wanted data in its words");
  EXPECT_TRUE(check({1, 2, 3, 1}).ok());
  EXPECT_TRUE(warnings.empty());
  EXPECT_TRUE(check({1, 2, 1, 1}).ok());
  EXPECT_EQ(warnings, std::vector<std::string>{
                          "data file data.tsv: 75% of its words are not in "
                          "the vocabulary " +
                          file.path() + " and all read as [UNK]"});
}

// Of held-out data too, in words of their own training data.
TEST(Vocabulary, DataInOtherWordsAreRejected) {
  TemporaryFile file("[PAD]\n[UNK]\nthe\n"), lines("1\tgood\n0\tbad\n"),
      pages("good .\nbad .\n\nbad .\n");
  DataT data = textData(lines.path(), 6);
  data.kind = "tsv";
  data.classes = 2;
  EXPECT_TRUE(open(data).ok());
  data.vocabulary_path = file.path();
  expectRejected(data, "none of its 2 words is in the vocabulary");
  data.kind = "documents";
  data.predictions = 1;
  data.path = pages.path();
  TemporaryFile marks("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n");
  data.vocabulary_path = marks.path();
  expectRejected(data, "none of its 6 words is in the vocabulary");
  TemporaryFile other("1\tplain\n");
  data.kind = "tsv";
  data.path = lines.path();
  data.vocabulary_path = "";
  EvaluationT heldOut;
  heldOut.path = other.path();
  expectRejected(openHeldOut(data, heldOut).status(),
                 "data file " + other.path() +
                     ": none of its 1 words is in the vocabulary of 4 ids");
}

TEST(Vocabulary, RejectsBadFiles) {
  auto expect = [](const std::string &text, const std::string &message) {
    TemporaryFile file(text);
    expectRejected(Vocabulary::open(file.path(), 2, 4).status(),
                   file.path() + message);
  };
  expect("", ": is empty");
  expect("[PAD]\n[UNK]\n", ": holds no words");
  expect("[PAD]\nthe\n", ":2: found 'the', wanted the mark '[UNK]'");
  expect("the\nof\n", ":1: found 'the', wanted the mark '[PAD]'");
  expect("[PAD]\n[UNK]\nThe\n", ":3: found 'The', wanted one word");
  expect("[PAD]\n[UNK]\nthe\n\n", ":4: found '', wanted one word");
  expect("[PAD]\n[UNK]\n##ing\n", ":3: found '##ing', wanted one word");
  expect("[PAD]\n[UNK]\nof the\n", ":3: found 'of the', wanted one word");
  expect("[PAD]\n[UNK]\nof\nof\n",
         ":4: found the word 'of' again, first on line 3");
  expect("[PAD]\n[UNK]\na\nb\nc\n", ":5: found more than 4 ids, wanted at "
                                    "most as many as model.vocabulary");
}

} // namespace kiln::test
