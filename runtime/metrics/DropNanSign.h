// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_METRICS_DROPNANSIGN_H
#define KILN_RUNTIME_METRICS_DROPNANSIGN_H

#include <cmath>
#include <limits>

namespace kiln {

/// NaN without its sign, which says nothing and would be printed.
inline double dropNanSign(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

} // namespace kiln

#endif // KILN_RUNTIME_METRICS_DROPNANSIGN_H
