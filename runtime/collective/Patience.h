// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_PATIENCE_H
#define KILN_RUNTIME_COLLECTIVE_PATIENCE_H

#include <algorithm>
#include <chrono>

namespace kiln {

/// Time left of a polled wait. Time between two polls counts for one `look` at
/// most: a process that was itself stopped must not blame other ranks.
class Patience {
public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds look{100};

  explicit Patience(Clock::duration limit) : left_(limit) {}

  bool isOver() {
    Clock::time_point now = Clock::now();
    left_ -= std::min<Clock::duration>(now - last_, look);
    last_ = now;
    return left_ <= Clock::duration::zero();
  }

private:
  Clock::duration left_;
  Clock::time_point last_ = Clock::now();
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_PATIENCE_H
