// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_ROSTER_H
#define KILN_RUNTIME_COLLECTIVE_ROSTER_H

#include "runtime/Status.h"

#include <atomic>
#include <cstdint>
#include <sys/types.h>

namespace kiln {

/// State that `kiln run -n` and the ranks it starts by mpirun share in memory.
/// Unlike a signal, an entry is not lost if its reader has not started yet; and
/// it needs no MPI.
class Roster {
public:
  /// Progress of a rank, in this order.
  enum class State : uint32_t {
    absent,
    started,
    connecting, // Blocked on all ranks, without a limit of its own.
    connected,
    linking, // Makes communicators with other ranks, also without a limit.
    linked,
    training, // Stops after a step if it is asked to.
    leaving,  // Blocked on all ranks again.
    left,
  };

  /// For the command; ranks that inherit its `setting` can join.
  static Expected<Roster> create(uint32_t ranks);
  Roster(Roster &&other) noexcept;
  Roster(const Roster &) = delete;
  ~Roster();

  /// Name and value of a variable of the environment.
  static constexpr const char *variable = "KILN_ROSTER";
  std::string setting() const;

  /// Asks all ranks to stop after the step. False if none trains yet: then none
  /// will, and there is nothing to wait for.
  bool requestStop(int signal);
  /// Ranks that have not begun must not begin.
  void close() { page_->phase = Phase::over; }
  uint32_t ranks() const { return page_->ranks; }
  State state(uint32_t rank) const { return entry(rank).state; }
  /// 0 before it has started.
  pid_t process(uint32_t rank) const { return entry(rank).process; }
  /// Of a rank that leaves or has left.
  int exitCode(uint32_t rank) const { return entry(rank).exitCode; }

  /// For a rank of mpirun, which from here on ends with mpirun: enters it into
  /// the roster named by its environment, if any. Ends it if the run is over
  /// already. Without a roster the functions below do nothing.
  static Status join();
  static bool isJoined();
  static void report(State state);
  /// Reports training, or ends the process if the run is over already.
  static void beginTraining();
  /// From here on nothing but MPI's end keeps the rank, and its exit code is
  /// known.
  static void beginLeaving(int exitCode);
  static void leave(int exitCode);
  /// The signal that the command has received; 0 for none.
  static int requestedStop();

private:
  struct Entry {
    std::atomic<pid_t> process;
    std::atomic<State> state;
    std::atomic<int> exitCode;
  };
  /// One word, so that a race between command and ranks has one winner: the
  /// first write decides.
  enum class Phase : uint32_t { starting, training, over };
  struct Page {
    std::atomic<Phase> phase;
    std::atomic<int> stop;
    uint32_t ranks;
  };
  static_assert(std::atomic<State>::is_always_lock_free &&
                    std::atomic<int>::is_always_lock_free,
                "processes share them");

  static void endIfOver();
  static size_t bytes(uint32_t ranks) {
    return sizeof(Page) + ranks * sizeof(Entry);
  }
  Roster(int file, Page *page) : file_(file), page_(page) {}
  Entry &entry(uint32_t rank) const {
    return reinterpret_cast<Entry *>(page_ + 1)[rank];
  }

  int file_;
  Page *page_;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_ROSTER_H
