// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Splits text into lines and words.
#ifndef KILN_RUNTIME_DATA_TEXT_H
#define KILN_RUNTIME_DATA_TEXT_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace kiln {

std::string_view asText(std::span<const std::byte> bytes);

/// Bytes for an error message: in quotes, truncated if long, and with bytes
/// that are not printable ASCII as \xNN.
std::string quoteBytes(std::string_view bytes);

/// Goes through the lines of a text. Line ends are \n or \r\n; a byte order
/// mark is no part of the first line.
class LineReader {
public:
  explicit LineReader(std::string_view text);

  bool next();
  std::string_view line() const { return line_; }
  uint64_t number() const { return number_; } // from 1

private:
  std::string_view rest_, line_;
  uint64_t number_ = 0;
};

/// Goes through the words of a text: split at white space, in lower case, with
/// each ASCII punctuation character as a word of its own. Bytes beyond ASCII
/// are letters, so UTF-8 passes unchanged.
class WordReader {
public:
  explicit WordReader(std::string_view text) : rest_(text) {}

  bool next();
  /// Valid until the next call of `next`.
  std::string_view word() const { return word_; }

private:
  std::string_view rest_;
  std::string word_;
};

struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
template <typename Value>
using WordMap =
    std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

class WordCounts {
public:
  void add(std::string_view text);
  const WordMap<uint64_t> &counts() const { return counts_; }

private:
  WordMap<uint64_t> counts_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_TEXT_H
