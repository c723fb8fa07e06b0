// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/thread/Team.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <immintrin.h>
#include <sched.h>

namespace kiln {

namespace {

/// A worker that waits longer than this likely waits for one that lost its
/// core. About the cost of sleeping and waking: on an idle machine nearly all
/// waits end sooner, on a busy one longer polling only steals time.
constexpr std::chrono::nanoseconds lookTime = std::chrono::microseconds(50);

/// How many times a gate can be polled in `lookTime`; a pause takes 5 ns on one
/// processor and 50 on another.
unsigned countLooks() {
  using Clock = std::chrono::steady_clock;
  constexpr unsigned sample = 256;
  Clock::duration best = std::chrono::seconds(1);
  for (int round = 0; round < 4; ++round) {
    Clock::time_point start = Clock::now();
    for (unsigned i = 0; i < sample; ++i)
      _mm_pause();
    best = std::min(best, Clock::now() - start);
  }
  auto ticks = std::max<Clock::rep>(best.count(), 1);
  return static_cast<unsigned>(sample * Clock::duration(lookTime).count() /
                               ticks);
}

} // namespace

Expected<std::unique_ptr<Team>> Team::start(unsigned workers, bool isPassive) {
  std::unique_ptr<Team> team(new Team(std::max(workers, 1u), isPassive));
  for (unsigned i = 1; i < workers; ++i) {
    char name[16]; // The kernel's limit.
    std::snprintf(name, sizeof(name), "kiln-%u", i);
    Expected<Thread> thread =
        Thread::start(name, [team = team.get(), i] { team->serve(i); });
    if (!thread.ok())
      return Status(thread.status().code(), "worker " + std::to_string(i + 1) +
                                                " of " +
                                                std::to_string(workers) + ": " +
                                                thread.status().message());
    team->threads_.push_back(std::move(*thread));
  }
  return team;
}

Team::Team(unsigned workers, bool isPassive)
    : workers_(workers), looks_(isPassive ? 0 : countLooks()), taken_(workers),
      cores_(workers) {
  threads_.reserve(workers - 1);
}

Team::~Team() {
  function_ = nullptr;
  run_.open();
}

void Team::serve(int64_t index) {
  for (uint64_t runs = 0;; ++runs) {
    run_.pass(runs, chooseLooks(index));
    if (!function_)
      return;
    function_(data_, {index, workers_});
    meet({index, workers_});
  }
}

void Team::enter(Function function, void *data) {
  std::lock_guard turn(running_);
  function_ = function;
  data_ = data;
  run_.open();
  function(data, {0, workers_});
  meet({0, workers_});
}

// The scheduler of a busy machine often puts two workers on one core. Polling
// then only keeps the other worker off it: steps took twice as long.
unsigned Team::chooseLooks(int64_t index) {
  if (looks_ == 0)
    return 0;
  int core = ::sched_getcpu();
  bool isShared = false;
  for (int64_t i = 0; i < workers_; ++i)
    isShared |= i != index && cores_[static_cast<size_t>(i)].load(
                                  std::memory_order_relaxed) == core;
  // Rarely changes, so that all can keep it in their caches.
  std::atomic<int> &mine = cores_[static_cast<size_t>(index)];
  if (mine.load(std::memory_order_relaxed) != core)
    mine.store(core, std::memory_order_relaxed);
  return isShared ? 0 : looks_;
}

void Team::meet(Worker worker) {
  // Cannot change before this worker has arrived.
  uint64_t meeting = meeting_.value();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 != workers_)
    return meeting_.pass(meeting, chooseLooks(worker.index));
  arrived_.store(0, std::memory_order_relaxed);
  meeting_.open();
}

int64_t Team::take(int64_t owner, uint64_t meeting) {
  std::atomic<uint64_t> &word = taken_[static_cast<size_t>(owner)].word;
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (true) {
    uint64_t piece = seen / 8 == meeting ? seen % 8 : 0;
    if (piece == pieces)
      return pieces;
    if (word.compare_exchange_weak(seen, meeting * 8 + piece + 1,
                                   std::memory_order_relaxed))
      return static_cast<int64_t>(piece);
  }
}

} // namespace kiln
