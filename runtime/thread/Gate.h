// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_THREAD_GATE_H
#define KILN_RUNTIME_THREAD_GATE_H

#include <atomic>
#include <chrono>
#include <cstdint>

namespace kiln {

/// A counter that threads wait for.
class alignas(64) Gate {
public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }

  /// Adds one. All earlier writes of the caller are visible to threads that
  /// pass.
  void open();

  /// Returns once the counter is no longer `old`: polls `looks` times, then
  /// sleeps, so that the awaited thread can have the core.
  void pass(uint64_t old, unsigned looks);

  /// Sleeps until the counter is at least `least`; false if that takes longer
  /// than `limit`.
  bool await(uint64_t least, std::chrono::nanoseconds limit);

private:
  void sleep(uint64_t old);

  std::atomic<uint64_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

} // namespace kiln

#endif // KILN_RUNTIME_THREAD_GATE_H
