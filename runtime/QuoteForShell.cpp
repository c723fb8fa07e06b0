// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/QuoteForShell.h"

namespace kiln {

std::string quoteForShell(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_./=:,@%+-";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos)
    return std::string(word);
  std::string text = "'";
  for (char letter : word)
    text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

} // namespace kiln
