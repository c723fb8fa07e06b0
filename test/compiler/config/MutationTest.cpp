// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ConfigTexts.h"

#include <gtest/gtest.h>
#include <random>

namespace kiln::test {
namespace {

/// Changes a text as an editor, a disk or an enemy would.
std::string mutate(std::string text, std::mt19937 &random) {
  auto below = [&](size_t limit) {
    return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
  };
  static const std::string pieces[] = {"{",        "}",
                                       "[",        "]",
                                       ": ",       "- ",
                                       "\n",       "\t",
                                       "&a ",      "*a",
                                       "!!x ",     "<<: ",
                                       "? ",       "| ",
                                       "> ",       "\"",
                                       "'",        "#",
                                       "%",        "---\n",
                                       "~",        "99999999999999999999",
                                       "-1",       "1e999",
                                       "\xff\xfe", "\xef\xbb\xbf"};
  size_t count = 1 + below(6);
  for (size_t i = 0; i < count && !text.empty(); ++i) {
    size_t at = below(text.size());
    switch (below(5)) {
    case 0:
      text[at] = static_cast<char>(below(256));
      break;
    case 1:
      text.erase(at, 1 + below(20));
      break;
    case 2:
      text.insert(at, pieces[below(std::size(pieces))]);
      break;
    case 3:
      text.insert(at, text.substr(below(text.size()), below(60)));
      break;
    case 4:
      text.resize(at);
      break;
    }
  }
  return text;
}

TEST(Mutation, NeverCrashesAndNeverIsBothValidAndWrong) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    std::string text = mutate(gptText, random);
    for (const std::string &line : errorsOf(text)) {
      ASSERT_NE(line, "config and errors contradict each other") << text;
      ASSERT_EQ(line.find('\n'), line.npos) << line;
    }
  }
}

TEST(Mutation, OverridesNeverCrash) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i)
    errorsOf(gptText,
             {mutate("training.optimizer={kind: sgd, momentum: 0.5}", random)});
}

} // namespace
} // namespace kiln::test
