// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CanonicalText.h"

#include <algorithm>
#include <charconv>

namespace kiln {

std::string printNumber(double value) {
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end);
}

static constexpr char digits[] = "0123456789abcdef";

std::string quoteText(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += '\\';
    if (byte < ' ' || byte == 0x7f) {
      result += "\\u00";
      result += digits[byte >> 4];
      result += digits[byte & 15];
    } else {
      result += c;
    }
  }
  return result + "\"";
}

/// Bytes of the UTF-8 character that a text begins with; 0 if it is none.
static size_t characterLength(std::string_view text) {
  auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
  };
  unsigned char first = byte(0);
  if (first < 0x80)
    return 1;
  size_t length = first >= 0xc2 && first < 0xe0   ? 2
                  : first >= 0xe0 && first < 0xf0 ? 3
                  : first >= 0xf0 && first < 0xf5 ? 4
                                                  : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
  // Overlong encodings, surrogates, values beyond Unicode; and the second set
  // of control characters.
  bool isWrong =
      (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90) ||
      (first == 0xc2 && byte(1) < 0xa0);
  return isWrong ? 0 : length;
}

std::string printableText(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    auto byte = static_cast<unsigned char>(text.front());
    size_t length = byte < ' ' || byte == 0x7f ? 0 : characterLength(text);
    if (length == 0)
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

} // namespace kiln
