// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Text.h"

#include <algorithm>
#include <vector>

namespace kiln {

std::string_view asText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

std::string quoteBytes(std::string_view bytes) {
  constexpr size_t longest = 40;
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "'";
  for (char c : bytes.substr(0, longest)) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7f)
      text += c;
    else
      text += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  return text + (bytes.size() > longest ? "...'" : "'");
}

LineReader::LineReader(std::string_view text) : rest_(text) {
  if (rest_.starts_with("\xef\xbb\xbf"))
    rest_.remove_prefix(3);
}

bool LineReader::next() {
  if (rest_.empty())
    return false;
  size_t end = std::min(rest_.find('\n'), rest_.size());
  line_ = rest_.substr(0, end);
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  if (line_.ends_with('\r'))
    line_.remove_suffix(1);
  ++number_;
  return true;
}

// Locales must not change ids, so none of <cctype>.
static bool isSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool isUpper(char c) { return c >= 'A' && c <= 'Z'; }
static bool isPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

bool WordReader::next() {
  size_t at = 0;
  while (at < rest_.size() && isSpace(rest_[at]))
    ++at;
  word_.clear();
  while (at < rest_.size() && !isSpace(rest_[at])) {
    char c = rest_[at];
    if (isPunctuation(c) && !word_.empty())
      break;
    word_ += isUpper(c) ? static_cast<char>(c - 'A' + 'a') : c;
    ++at;
    if (isPunctuation(c))
      break;
  }
  rest_.remove_prefix(at);
  return !word_.empty();
}

void WordCounts::add(std::string_view text) {
  for (WordReader words(text); words.next();) {
    auto found = counts_.find(words.word());
    if (found == counts_.end())
      counts_.emplace(words.word(), 1);
    else
      ++found->second;
  }
}

} // namespace kiln
