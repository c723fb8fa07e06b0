// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_ROSTER_H
#define KILN_RUNTIME_COLLECTIVE_ROSTER_H

#include "runtime/Status.h"

#include <atomic>
#include <cstdint>
#include <sys/types.h>

namespace kiln {

/// What `kiln run -n` and the ranks that it has mpirun start know of each
/// other, in memory that they share. Nothing in it gets lost because somebody
/// was not there yet, as signals do; and it needs no MPI.
class Roster {
public:
  /// What a rank has come to, in this order.
  enum class Stage : uint32_t {
    absent,
    started,
    connecting, // Waits for the others, without a limit of its own.
    connected,
    linking, // Makes communicators with the others, again without a limit.
    linked,
    training, // Stops after a step if it is asked to.
    leaving,  // Waits for the others again.
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

  /// Asks all to stop after the step. False if none trains yet: then none will,
  /// and there is nothing to wait for.
  bool requestStop(int signal);
  /// Who has not begun yet must not.
  void close() { page_->phase = Phase::over; }
  uint32_t ranks() const { return page_->ranks; }
  Stage stage(uint32_t rank) const { return entry(rank).stage; }
  /// 0 before it has started.
  pid_t process(uint32_t rank) const { return entry(rank).process; }
  /// Of one that has left.
  int exitCode(uint32_t rank) const { return entry(rank).exitCode; }

  /// For a rank of mpirun, which ends with it from here on: enters it into the
  /// roster that its environment tells of, if any. If the run is over already
  /// it ends here. Without a roster the rest does nothing.
  static Status join();
  static bool isJoined();
  static void report(Stage stage);
  /// Reports it, or ends the process if the run is over already.
  static void beginTraining();
  static void leave(int exitCode);
  /// The signal that the command has got; 0 for none.
  static int requestedStop();

private:
  struct Entry {
    std::atomic<pid_t> process;
    std::atomic<Stage> stage;
    std::atomic<int> exitCode;
  };
  /// One word, so that command and ranks cannot both be right: what comes first
  /// decides.
  enum class Phase : uint32_t { starting, training, over };
  struct Page {
    std::atomic<Phase> phase;
    std::atomic<int> stop;
    uint32_t ranks;
  };
  static_assert(std::atomic<Stage>::is_always_lock_free &&
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
