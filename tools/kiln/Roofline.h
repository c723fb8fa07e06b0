// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_ROOFLINE_H
#define KILN_TOOLS_KILN_ROOFLINE_H

#include "runtime/Status.h"

namespace kiln {

/// Peak rates of a machine, for comparison with those of kernels.
struct Roofline {
  double gflops; // f32 multiply-adds, counted as two each.
  double gbs;    // To and from main memory, reads plus writes.

  /// The least time for work of this size on data in main memory. Work on
  /// cached data can be faster.
  double seconds(double flops, double bytes) const;
};

/// Measures for about 0.3 s on `workers` threads. The best of many short
/// trials, so that other load on the machine matters little.
Expected<Roofline> measureRoofline(unsigned workers);

} // namespace kiln

#endif // KILN_TOOLS_KILN_ROOFLINE_H
