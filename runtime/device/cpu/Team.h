// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The workers of a CPU device. They are libgomp's, entered through its ABI:
// oneDNN uses libgomp too, and two pools on the same cores would wait for each
// other.
#ifndef KILN_RUNTIME_DEVICE_CPU_TEAM_H
#define KILN_RUNTIME_DEVICE_CPU_TEAM_H

#include <cstdint>

namespace kiln::cpu {

/// Which worker of how many is running.
struct Worker {
  int64_t index, count;

  /// This worker's share of `items`: contiguous, and all shares tile [0,
  /// items).
  int64_t begin(int64_t items) const { return items * index / count; }
  int64_t end(int64_t items) const { return items * (index + 1) / count; }
};

/// Runs functions on all workers. The calling thread is worker 0, and must be
/// the same thread from one call to the next for the workers to be kept.
class Team {
public:
  explicit Team(unsigned workers) : workers_(workers ? workers : 1) {}

  unsigned workers() const { return workers_; }

  /// Makes the calling thread's parallel regions, oneDNN's included, use this
  /// team's number of workers, with denormals flushed on each of them.
  void adopt() const;

  /// Calls body(worker) on every worker and returns when all are done.
  template <typename Body> void run(Body &body) const {
    enter([](void *data) { (*static_cast<Body *>(data))(currentWorker()); },
          &body);
  }

  /// Inside `run`: returns when all workers have come here.
  static void meet();

private:
  void enter(void (*function)(void *), void *data) const;
  static Worker currentWorker();

  unsigned workers_;
};

/// Treats denormals as zero in results and operands while it lives. Training
/// meets denormals in moments that decay, where they cost 25 times as much.
/// Always on, because it changes results.
class FlushDenormals {
public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals &) = delete;

private:
  unsigned saved_;
};

/// Starts the program again with libgomp's workers told to sleep soon (after
/// about 0.1 ms instead of 15 ms of spinning), unless the environment already
/// says how they wait. Where something else wants a core, long spinning makes
/// every region wait for the scheduler: a step of 4 regions took 32 ms instead
/// of 0.05. libgomp reads its environment before any code of the program runs,
/// preinit_array included, so there is no other way. Call first in main;
/// returns if there is nothing to change.
void restartWithBriefSpinning(char **argv);

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_TEAM_H
