// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints this machine's peak rates, as JSON: multiply-adds that stay in
// registers, matrix products in f32 whose operands are packed and in cache, and
// memory traffic. The benchmark sets every kernel's time against the first and
// the last.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace {

template <typename Function>
double bestSeconds(int repeats, Function function) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    auto start = std::chrono::steady_clock::now();
    function();
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

/// Calls body(worker) on `threads` threads.
template <typename Function> void onThreads(unsigned threads, Function body) {
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i)
    workers.emplace_back(body, i);
  for (std::thread &worker : workers)
    worker.join();
}

using Vector8 = float __attribute__((vector_size(32)));
using Vector16 = float __attribute__((vector_size(64)));
constexpr int64_t peakRounds = 100'000, tileDepth = 256;

// Twelve chains hide the latency of a multiply-add on every processor with two
// units of latency four or five.
#define KILN_MULTIPLY_ADDS(Vector)                                             \
  Vector sums[12] = {}, scale = Vector{} + 0.999f, add = Vector{} + 0.001f;    \
  for (int64_t i = 0; i < peakRounds; ++i) {                                   \
    _Pragma("clang loop unroll(full)") for (Vector &sum : sums) sum =          \
        sum * scale + add;                                                     \
    asm volatile("" ::: "memory");                                             \
  }                                                                            \
  Vector total = {};                                                           \
  for (Vector &sum : sums)                                                     \
    total += sum;                                                              \
  return total[0];

__attribute__((target("avx2,fma"))) float multiplyAdds8() {
  KILN_MULTIPLY_ADDS(Vector8)
}
__attribute__((target("avx512f"))) float multiplyAdds16() {
  KILN_MULTIPLY_ADDS(Vector16)
}

/// A tile of C in registers, rows x two vectors, from packed panels of A and B
/// that stay in the nearest caches.
template <typename Vector, int rows>
__attribute__((always_inline)) inline void
multiplyTile(const float *a, const float *b, float *c) {
  constexpr int lanes = sizeof(Vector) / sizeof(float);
  Vector sums[rows][2] = {};
  for (int64_t k = 0; k < tileDepth; ++k) {
    const auto *line = reinterpret_cast<const Vector *>(b + k * 2 * lanes);
    Vector left = line[0], right = line[1];
    _Pragma("clang loop unroll(full)") for (int row = 0; row < rows; ++row) {
      Vector scale = a[k * rows + row] - Vector{}; // in every lane
      sums[row][0] += scale * left;
      sums[row][1] += scale * right;
    }
  }
  for (int row = 0; row < rows; ++row)
    for (int half = 0; half < 2; ++half)
      reinterpret_cast<Vector *>(c)[row * 2 + half] = sums[row][half];
}

__attribute__((target("avx2,fma"))) void
multiplyTile8(const float *a, const float *b, float *c) {
  multiplyTile<Vector8, 6>(a, b, c);
}
__attribute__((target("avx512f"))) void
multiplyTile16(const float *a, const float *b, float *c) {
  multiplyTile<Vector16, 12>(a, b, c);
}

/// Sum over the threads of work / best time of a body.
template <typename Function>
double bestRate(unsigned threads, double work, Function body) {
  std::vector<double> rates(threads);
  onThreads(threads, [&](unsigned worker) {
    rates[worker] = work / bestSeconds(1000, [&] { body(worker); });
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double measurePeak(unsigned threads, bool isWide) {
  return bestRate(threads, 2.0 * 12 * (isWide ? 16 : 8) * double(peakRounds),
                  [&](unsigned) {
                    volatile float kept =
                        isWide ? multiplyAdds16() : multiplyAdds8();
                    (void)kept;
                  });
}

double measureProduct(unsigned threads, bool isWide) {
  constexpr int tiles = 32;
  int64_t rows = isWide ? 12 : 6, columns = isWide ? 32 : 16;
  struct alignas(64) Operands {
    float a[tiles][12 * tileDepth], b[32 * tileDepth], c[12 * 32];
  };
  std::vector<Operands> operands(threads);
  // Pages that were never written all map to the same page of zeros, which
  // confuses first-level caches.
  for (Operands &each : operands) {
    std::fill_n(each.a[0], tiles * 12 * tileDepth, 0.5f);
    std::fill_n(each.b, 32 * tileDepth, 0.25f);
  }
  return bestRate(threads, 2.0 * double(rows * columns * tileDepth * tiles),
                  [&](unsigned worker) {
                    Operands &mine = operands[worker];
                    for (const float *panel : mine.a)
                      isWide ? multiplyTile16(panel, mine.b, mine.c)
                             : multiplyTile8(panel, mine.b, mine.c);
                    asm volatile("" ::"r"(mine.c) : "memory");
                  });
}

/// y += s x, as an optimizer does it: two reads and a write to memory that was
/// read, so no traffic is hidden.
void update(float *y, const float *x, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    y[i] += 0.5f * x[i];
}

double measureMemory(unsigned threads) {
  // Far more than any cache holds.
  constexpr int64_t count = int64_t{64} << 20;
  auto x = std::make_unique<float[]>(count),
       y = std::make_unique<float[]>(count);
  auto sweep = [&] {
    onThreads(threads, [&](unsigned worker) {
      int64_t begin = count * worker / threads,
              end = count * (worker + 1) / threads;
      update(&y[begin], &x[begin], end - begin);
    });
  };
  sweep();
  return 3.0 * sizeof(float) * double(count) / bestSeconds(12, sweep);
}

} // namespace

int main() {
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  bool isWide = __builtin_cpu_supports("avx512f");
  std::printf("{\"threads\": %u, \"peak_gflops\": %.1f, \"product_gflops\": "
              "%.1f, \"gbytes\": %.2f}\n",
              threads, measurePeak(threads, isWide) * 1e-9,
              measureProduct(threads, isWide) * 1e-9,
              measureMemory(threads) * 1e-9);
}
