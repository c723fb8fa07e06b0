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

TEST(QuoteBytes, ShowsWhatCannotBePrinted) {
  EXPECT_EQ(quoteBytes("a\tb\xff"), "'a\\x09b\\xff'");
  EXPECT_EQ(quoteBytes(std::string(50, 'a')),
            "'" + std::string(40, 'a') + "...'");
}

} // namespace kiln::test
