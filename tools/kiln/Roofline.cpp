// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/Roofline.h"
#include "runtime/thread/Team.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <memory>

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;

/// Repeats trial(worker, number) on all workers together for `budget` seconds;
/// returns the shortest time. A trial should be short: on a busy machine only
/// short ones find all workers running.
template <typename Trial>
double bestSeconds(Team &team, double budget, Trial trial) {
  std::chrono::duration<double> best(1e30), spent(0);
  auto body = [&](Worker worker) {
    for (int64_t number = 0; spent.count() < budget; ++number) {
      team.meet(worker);
      Clock::time_point start = Clock::now();
      trial(worker, number);
      team.meet(worker);
      std::chrono::duration<double> time = Clock::now() - start;
      if (worker.index == 0) {
        best = std::min(best, time);
        spent += time;
      }
      team.meet(worker); // All workers see the time spent.
    }
  };
  team.run(body);
  return best.count();
}

constexpr int64_t rounds = 20000;
// Two units with latency four or five need ten in flight; more fill registers.
constexpr int chains = 12;

// The empty assembly keeps the compiler from folding the loops.
__attribute__((target("avx512f"))) int64_t multiplyAdd512() {
  __m512 sums[chains], factor = _mm512_set1_ps(0.5f);
  for (__m512 &sum : sums)
    sum = factor;
  for (int64_t i = 0; i < rounds; ++i)
#pragma clang loop unroll(full)
    for (int chain = 0; chain < chains; ++chain) {
      sums[chain] = _mm512_fmadd_ps(sums[chain], factor, factor);
      asm volatile("" : "+v"(sums[chain]));
    }
  return rounds * chains * 16 * 2;
}

__attribute__((target("avx2,fma"))) int64_t multiplyAdd256() {
  __m256 sums[chains], factor = _mm256_set1_ps(0.5f);
  for (__m256 &sum : sums)
    sum = factor;
  for (int64_t i = 0; i < rounds; ++i)
#pragma clang loop unroll(full)
    for (int chain = 0; chain < chains; ++chain) {
      sums[chain] = _mm256_fmadd_ps(sums[chain], factor, factor);
      asm volatile("" : "+x"(sums[chain]));
    }
  return rounds * chains * 8 * 2;
}

int64_t multiplyAdd128() {
  __m128 sums[chains], factor = _mm_set1_ps(0.5f);
  for (__m128 &sum : sums)
    sum = factor;
  for (int64_t i = 0; i < rounds; ++i)
#pragma clang loop unroll(full)
    for (int chain = 0; chain < chains; ++chain) {
      sums[chain] = _mm_add_ps(_mm_mul_ps(sums[chain], factor), factor);
      asm volatile("" : "+x"(sums[chain]));
    }
  return rounds * chains * 4 * 2;
}

/// The widest version for this processor; each returns its operations.
int64_t (*chooseMultiplyAdd())() {
  if (__builtin_cpu_supports("avx512f"))
    return multiplyAdd512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return multiplyAdd256;
  return multiplyAdd128;
}

double measureGflops(Team &team) {
  int64_t (*multiplyAdd)() = chooseMultiplyAdd();
  int64_t operations = multiplyAdd();
  double seconds =
      bestSeconds(team, 0.12, [=](Worker, int64_t) { multiplyAdd(); });
  return double(operations) * team.workers() / seconds * 1e-9;
}

struct Free {
  void operator()(void *memory) const { std::free(memory); }
};

double measureGbs(Team &team) {
  // Together far more than caches hold.
  constexpr int64_t slices = 16, slice = int64_t{6} << 20;
  constexpr size_t bytes = slices * slice;
  std::unique_ptr<char, Free> target(
      static_cast<char *>(std::aligned_alloc(4096, bytes)));
  std::unique_ptr<char, Free> source(
      static_cast<char *>(std::aligned_alloc(4096, bytes)));
  if (!target || !source)
    return 0;
  std::memset(source.get(), 1, bytes);
  std::memset(target.get(), 1, bytes);
  auto copy = [&](Worker worker, int64_t number) {
    int64_t first = number % slices * slice;
    int64_t begin = first + worker.begin(slice);
    int64_t end = first + worker.end(slice);
    std::memcpy(target.get() + begin, source.get() + begin,
                size_t(end - begin));
  };
  return 2e-9 * double(slice) / bestSeconds(team, 0.12, copy);
}

} // namespace

double Roofline::seconds(double flops, double bytes) const {
  double arithmetic = gflops > 0 ? flops / gflops * 1e-9 : 0;
  double memory = gbs > 0 ? bytes / gbs * 1e-9 : 0;
  return std::max(arithmetic, memory);
}

Expected<Roofline> measureRoofline(unsigned workers) {
  Expected<std::unique_ptr<Team>> team = Team::start(workers);
  if (!team.ok())
    return team.status();
  return Roofline{measureGflops(**team), measureGbs(**team)};
}

} // namespace kiln
