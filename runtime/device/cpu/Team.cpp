// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Team.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kiln::cpu {

namespace {

/// Kernels keep up to 1 MiB of temporaries on the stack.
constexpr size_t stackBytes = size_t{8} << 20;

/// A worker that waits longer than this is likely to wait for one that lost its
/// core. About what sleeping and waking take: on an idle machine nearly all
/// waits end sooner, on a busy one longer looking only steals time.
constexpr std::chrono::nanoseconds lookTime = std::chrono::microseconds(50);

/// How many times a gate can be looked at in `lookTime`; a pause takes 5 ns on
/// one processor and 50 on another.
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

static long futex(const std::atomic<uint64_t> &word, int operation,
                  uint32_t value) {
  // The low half of the word: x86 puts it first.
  return ::syscall(SYS_futex, reinterpret_cast<const uint32_t *>(&word),
                   operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
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

Expected<std::unique_ptr<Team>> Team::start(unsigned workers) {
  std::unique_ptr<Team> team(new Team(std::max(workers, 1u)));
  while (team->threads_.size() + 1 < workers)
    if (Status status = team->startThread(); !status.ok())
      return status;
  return team;
}

Team::Team(unsigned workers)
    : workers_(workers), looks_(countLooks()), taken_(workers),
      cores_(workers) {
  seats_.reserve(workers - 1); // Threads keep their seat's address.
  threads_.reserve(workers - 1);
}

Team::~Team() {
  function_ = nullptr;
  run_.open();
  for (pthread_t thread : threads_)
    ::pthread_join(thread, nullptr);
}

Status Team::startThread() {
  Seat &seat = seats_.emplace_back(this, int64_t(threads_.size()) + 1);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stackBytes);
  // The thread inherits this mask: signals are for the thread that runs steps.
  sigset_t all, saved;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &saved);
  pthread_t thread;
  int error = ::pthread_create(&thread, &attributes, serveThread, &seat);
  ::pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error != 0)
    return Status(Code::failed, "cannot start worker " +
                                    std::to_string(seat.index + 1) + " of " +
                                    std::to_string(workers_) + ": " +
                                    std::strerror(error));
  char name[16]; // The kernel's limit.
  std::snprintf(name, sizeof(name), "kiln-%u", unsigned(seat.index));
  ::pthread_setname_np(thread, name);
  threads_.push_back(thread);
  return Status();
}

void *Team::serveThread(void *data) {
  auto *seat = static_cast<Seat *>(data);
  seat->team->serve(seat->index);
  return nullptr;
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
  function_ = function;
  data_ = data;
  run_.open();
  function(data, {0, workers_});
  meet({0, workers_});
}

// The scheduler of a busy machine often puts two workers on one core. Looking
// then only keeps the other from coming: steps took twice as long.
unsigned Team::chooseLooks(int64_t index) {
  int core = ::sched_getcpu();
  bool isShared = false;
  for (int64_t i = 0; i < workers_; ++i)
    isShared |= i != index && cores_[static_cast<size_t>(i)].load(
                                  std::memory_order_relaxed) == core;
  // Rarely changes, and then all can keep reading it from their caches.
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

FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  constexpr unsigned flushToZero = 0x8000, denormalsAreZero = 0x0040;
  _mm_setcsr(saved_ | flushToZero | denormalsAreZero);
}

FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }

} // namespace kiln::cpu
