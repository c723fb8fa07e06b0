// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Text.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln::test {

using Words = std::vector<std::string>;

static Words wordsOf(std::string_view text) {
  Words words;
  for (WordReader reader(text); reader.next();)
    words.emplace_back(reader.word());
  return words;
}

TEST(WordReader, LowersAsciiAndPartsPunctuation) {
  EXPECT_EQ(wordsOf("Don't STOP, it's 2.5x (fun)!"),
            (Words{"don", "'", "t", "stop", ",", "it", "'", "s", "2", ".", "5x",
                   "(", "fun", ")", "!"}));
  EXPECT_EQ(wordsOf(" \t\r\n\v\f"), Words());
  EXPECT_EQ(wordsOf("..."), (Words{".", ".", "."}));
}

TEST(WordReader, PassesOtherBytes) {
  EXPECT_EQ(wordsOf("Caf\xc3\x89 na\xc3\xafve"),
            (Words{"caf\xc3\x89", "na\xc3\xafve"}));
  EXPECT_EQ(wordsOf(std::string_view("\xff\0a", 3)),
            (Words{std::string("\xff\0a", 3)}));
}

TEST(LineReader, TakesBothLineEnds) {
  std::vector<std::string> lines;
  for (LineReader reader("\xef\xbb\xbf"
                         "a\r\n\nb\rc\nlast");
       reader.next();)
    lines.push_back(std::to_string(reader.number()) +
                    std::string(reader.line()));
  EXPECT_EQ(lines, (std::vector<std::string>{"1a", "2", "3b\rc", "4last"}));
}

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

TEST(QuoteBytes, ShowsWhatCannotBePrinted) {
  EXPECT_EQ(quoteBytes("a\tb\xff"), "'a\\x09b\\xff'");
  EXPECT_EQ(quoteBytes(std::string(50, 'a')),
            "'" + std::string(40, 'a') + "...'");
}

} // namespace kiln::test
