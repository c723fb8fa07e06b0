// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/PrintBytes.h"

#include <cstdio>
#include <iterator>

namespace kiln {

std::string printBytes(uint64_t bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  snprintf(text, sizeof(text), unit ? "%.2f %s" : "%.0f %s", value,
           units[unit]);
  return text;
}

} // namespace kiln
