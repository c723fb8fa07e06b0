// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/data/Datasets.h"

namespace kiln::test {

TEST(TokenDataset, LabelsAreTokensOneFurtherOn) {
  TemporaryFile file("abcdefghijklm"); // 13 = 3 * 4 + 1: exactly 3 samples.
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 3u);
  Packed<Input, InputT> tokens(input("tokens", ElementType::i32, {4}));
  Packed<Input, InputT> labels(input("labels", ElementType::i64, {2, 2}));
  ASSERT_TRUE((*dataset)->checkInput(*tokens).ok());
  ASSERT_TRUE((*dataset)->checkInput(*labels).ok());
  int32_t first[4];
  int64_t second[4];
  ASSERT_TRUE((*dataset)
                  ->write(*tokens, {0, 2}, reinterpret_cast<std::byte *>(first))
                  .ok());
  ASSERT_TRUE(
      (*dataset)
          ->write(*labels, {0, 2}, reinterpret_cast<std::byte *>(second))
          .ok());
  EXPECT_EQ(first[0], 'i');
  EXPECT_EQ(first[3], 'l');
  EXPECT_EQ(second[0], 'j');
  EXPECT_EQ(second[3], 'm');
}

TEST(TokenDataset, ReadsBothWidths) {
  for (uint32_t width : {2, 4}) {
    std::string bytes;
    for (int i = 0; i < 9; ++i) {
      bytes += static_cast<char>(i);
      bytes += '\x01';
      bytes += std::string(width - 2, '\0');
    }
    TemporaryFile file(bytes);
    DataT data = textData(file.path());
    data.kind = "tokens";
    data.width = width;
    data.vocabulary = 265;
    auto dataset = open(data);
    ASSERT_TRUE(dataset.ok()) << dataset.status().message();
    EXPECT_EQ((*dataset)->samples(), 2u);
    EXPECT_EQ(read(**dataset, "tokens", {4}, {0, 1})[3], 263);
    data.vocabulary = 263;
    expectRejected(data, "token 7 has id 263, which is not below the "
                         "vocabulary of 263");
  }
}

TEST(TokenDataset, RejectsBadFiles) {
  expectRejected(textData("/nonexistent/corpus.txt"),
                 "data file /nonexistent/corpus.txt: No such file");
  TemporaryFile empty(""), brief("abcd"), odd("abcdefghi");
  expectRejected(textData(empty.path()), "is empty");
  expectRejected(textData(brief.path()), "has 4 tokens, one sample takes 5");
  DataT data = textData(odd.path());
  data.kind = "tokens";
  data.width = 2;
  expectRejected(data, "has 9 bytes, not a multiple of a token's 2");
  data.width = 3;
  expectRejected(data, "tokens of 3 bytes, wanted 2 or 4");
  data = textData(odd.path());
  data.vocabulary = 'e';
  expectRejected(data, "token 4 has id 101");
  data = textData(odd.path());
  data.tokenizer = "words";
  expectRejected(data, "tokenizer 'words'");
  data = textData(odd.path(), 0);
  expectRejected(data, "sequence is 0");
  data.kind = "pictures";
  expectRejected(data, "data kind 'pictures' is not one of");
}

// The check at the opening does not hold for bytes that were written later.
TEST(TokenDataset, ChecksIdsAsTheyAreRead) {
  TemporaryFile file(std::string(4 * 9, '\0'));
  DataT data = textData(file.path());
  data.kind = "tokens";
  data.width = 4;
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  for (auto [id, printed] : {std::pair("\xff\xff\0\0", "65535"),
                             std::pair("\xff\xff\xff\xff", "4294967295")}) {
    writeFile(file.path(), std::string(4 * 6, '\0') + std::string(id, 4) +
                               std::string(4 * 2, '\0'));
    for (ElementType type : {ElementType::i32, ElementType::i64})
      for (const char *name : {"tokens", "labels"}) {
        PackedInput packed(input(name, type, {4}));
        int64_t values[4];
        auto *target = reinterpret_cast<std::byte *>(values);
        EXPECT_TRUE((*dataset)->write(*packed, {0, 0}, target).ok());
        expectRejected((*dataset)->write(*packed, {0, 1}, target),
                       "data file " + file.path() + ": token 6 has id " +
                           printed +
                           ", which is not below the vocabulary of "
                           "256; the file has changed");
      }
  }
}

TEST(TokenDataset, RejectsInputsThatDoNotFit) {
  TemporaryFile file("abcdefghijklm");
  expectInputsRejected(textData(file.path()),
                       {input("image", ElementType::i32, {4}),
                        input("tokens", ElementType::f32, {4}),
                        input("tokens", ElementType::i32, {5})});
}

} // namespace kiln::test
