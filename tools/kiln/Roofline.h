// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_ROOFLINE_H
#define KILN_TOOLS_KILN_ROOFLINE_H

#include "runtime/Status.h"

namespace kiln {

/// What a machine can do at best, for comparison with what kernels do.
struct Roofline {
  double gflops; // f32 multiply-adds, counted as two each.
  double gbs;    // To and from main memory, reads plus writes.

  /// The least time in which work of this size can be done if it comes from
  /// main memory. Work on what lies in caches can be faster.
  double seconds(double flops, double bytes) const;
};

/// Measures for about 0.3 s on `workers` threads. The best of many short
/// trials, so that other load on the machine matters little.
Expected<Roofline> measureRoofline(unsigned workers);

} // namespace kiln

#endif // KILN_TOOLS_KILN_ROOFLINE_H
