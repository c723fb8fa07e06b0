// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_METRICS_LINEWRITER_H
#define KILN_RUNTIME_METRICS_LINEWRITER_H

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <span>
#include <string_view>

namespace kiln {

/// Assembles text in a buffer of fixed size, without allocating; text that does
/// not fit is left out.
class LineWriter {
public:
  explicit LineWriter(std::span<char> buffer) : buffer_(buffer) {}

  __attribute__((format(printf, 2, 3))) void print(const char *format, ...) {
    va_list values;
    va_start(values, format);
    int wanted = std::vsnprintf(buffer_.data() + used_, buffer_.size() - used_,
                                format, values);
    va_end(values);
    if (wanted > 0)
      used_ = std::min(used_ + static_cast<size_t>(wanted), buffer_.size() - 1);
  }

  std::string_view text() const { return {buffer_.data(), used_}; }

private:
  std::span<char> buffer_;
  size_t used_ = 0;
};

} // namespace kiln

#endif // KILN_RUNTIME_METRICS_LINEWRITER_H
