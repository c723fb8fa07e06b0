// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/metrics/ProgressBar.h"
#include "runtime/metrics/LineWriter.h"
#include "runtime/metrics/TrainLog.h"

#include <array>
#include <cinttypes>

namespace kiln {

/// To the line's begin, then erase to its end.
static constexpr std::string_view erase = "\r\x1b[K";

void ProgressBar::show(uint64_t step, uint64_t lastStep, double loss) {
  if (terminal_ < 0)
    return;
  Clock::time_point now = Clock::now();
  if (firstStep_ == 0) {
    firstStep_ = step;
    start_ = now;
  }
  if (isShown_ && now - drawn_ < std::chrono::milliseconds(100))
    return;
  constexpr uint64_t width = 30;
  constexpr std::string_view full = "##############################";
  auto done = static_cast<int>(width * step / lastStep);
  std::array<char, 160> buffer;
  LineWriter line(buffer);
  line.print("%s[%-*.*s] %" PRIu64 "/%" PRIu64 "  loss %.5g", erase.data(),
             static_cast<int>(width), done, full.data(), step, lastStep, loss);
  if (step > firstStep_) {
    double seconds = std::chrono::duration<double>(now - start_).count();
    double left = seconds / static_cast<double>(step - firstStep_) *
                  static_cast<double>(lastStep - step);
    line.print("  %.0f s left", left);
  }
  isShown_ = writeText(terminal_, line.text());
  drawn_ = now;
}

void ProgressBar::clear() {
  if (isShown_)
    (void)writeText(terminal_, erase);
  isShown_ = false;
}

} // namespace kiln
