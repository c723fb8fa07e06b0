// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_COMPILER_BACKEND_CPU_WORKERPAIR_H
#define KILN_TEST_COMPILER_BACKEND_CPU_WORKERPAIR_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <immintrin.h>
#include <thread>

namespace kiln::cpu::test {

/// Two threads that meet by spinning, as the runtime's do while work comes: for
/// benches of single kernels.
class WorkerPair {
public:
  static constexpr int64_t kWorkers = 2;

  WorkerPair() = default;
  WorkerPair(const WorkerPair &) = delete;
  ~WorkerPair() {
    isOver = true;
    other.join();
  }

  /// Runs all stages of a kernel that has `runShare(stage, buffers, worker,
  /// workers)`.
  template <typename Kernel>
  void run(size_t stages, const Kernel &kernel, void *const *buffers) {
    for (size_t stage = 0; stage < stages; ++stage) {
      share = [&kernel, stage, buffers](int64_t worker) {
        kernel.runShare(stage, buffers, worker, kWorkers);
      };
      int turn = posted.fetch_add(1, std::memory_order_release) + 1;
      share(0);
      while (done.load(std::memory_order_acquire) != turn)
        _mm_pause();
    }
  }

private:
  void serve() {
    for (int turn = 1;; ++turn) {
      while (posted.load(std::memory_order_acquire) < turn) {
        if (isOver)
          return;
        _mm_pause();
      }
      share(1);
      done.store(turn, std::memory_order_release);
    }
  }

  std::function<void(int64_t worker)> share;
  std::atomic<int> posted = 0, done = 0;
  std::atomic<bool> isOver = false;
  std::thread other{[this] { serve(); }};
};

} // namespace kiln::cpu::test

#endif // KILN_TEST_COMPILER_BACKEND_CPU_WORKERPAIR_H
