// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/thread/Gate.h"

#include <climits>
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kiln {

static long futex(const std::atomic<uint64_t> &word, int operation,
                  uint32_t value, const timespec *limit = nullptr) {
  // The low half of the word: x86 puts it first.
  return ::syscall(SYS_futex, reinterpret_cast<const uint32_t *>(&word),
                   operation | FUTEX_PRIVATE_FLAG, value, limit, nullptr, 0);
}

void Gate::open() {
  // In one order with the sleeper's two accesses: either it sees the new value
  // or it is seen here.
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0)
    futex(value_, FUTEX_WAKE, INT_MAX);
}

void Gate::pass(uint64_t old, unsigned looks) {
  for (unsigned i = 0; i < looks; ++i) {
    if (value() != old)
      return;
    _mm_pause();
  }
  sleep(old);
}

void Gate::sleep(uint64_t old) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old)
    futex(value_, FUTEX_WAIT, static_cast<uint32_t>(old));
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

bool Gate::await(uint64_t least, std::chrono::nanoseconds limit) {
  using Clock = std::chrono::steady_clock;
  if (value() >= least)
    return true;
  Clock::time_point end = Clock::now() + limit;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  bool isPassed;
  while (true) {
    uint64_t seen = value_.load(std::memory_order_seq_cst);
    auto left = (end - Clock::now()).count();
    if ((isPassed = seen >= least) || left <= 0)
      break;
    constexpr long second = 1'000'000'000;
    timespec rest = {left / second, left % second};
    futex(value_, FUTEX_WAIT, static_cast<uint32_t>(seen), &rest);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return isPassed;
}

} // namespace kiln
