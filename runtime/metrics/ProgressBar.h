// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_METRICS_PROGRESSBAR_H
#define KILN_RUNTIME_METRICS_PROGRESSBAR_H

#include <chrono>
#include <cstdint>

namespace kiln {

/// A line on a terminal that shows the progress of a run. It is drawn over
/// itself, so it must never reach a file. Allocates nothing.
class ProgressBar {
public:
  /// Descriptor of the terminal; -1 for no bar.
  explicit ProgressBar(int terminal) : terminal_(terminal) {}

  /// Draws the bar, a few times a second however often it is called.
  void show(uint64_t step, uint64_t lastStep, double loss);
  /// Makes room for a line of text.
  void clear();

private:
  using Clock = std::chrono::steady_clock;

  int terminal_;
  bool isShown_ = false;
  uint64_t firstStep_ = 0; // Of this bar; the rate since gives the time left.
  Clock::time_point start_, drawn_;
};

} // namespace kiln

#endif // KILN_RUNTIME_METRICS_PROGRESSBAR_H
