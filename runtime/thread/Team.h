// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_THREAD_TEAM_H
#define KILN_RUNTIME_THREAD_TEAM_H

#include "runtime/thread/Gate.h"
#include "runtime/thread/Thread.h"

#include <mutex>
#include <vector>

namespace kiln {

/// Index of a worker and the number of workers.
struct Worker {
  int64_t index, count;

  /// This worker's share of `items`: contiguous, and all shares tile [0,
  /// items).
  int64_t begin(int64_t items) const { return items * index / count; }
  int64_t end(int64_t items) const { return items * (index + 1) / count; }
};

/// Workers of a device or of the host: threads that are started once and
/// allocate nothing. The caller of `run` is worker 0. Any thread may call it;
/// runs take turns.
class Team {
public:
  /// `failed` if the system refuses a thread. A team that `isPassive` sleeps
  /// without polling: other threads need the cores.
  static Expected<std::unique_ptr<Team>> start(unsigned workers,
                                               bool isPassive = false);
  ~Team();
  Team(const Team &) = delete;

  unsigned workers() const { return static_cast<unsigned>(workers_); }

  /// Calls body(worker) on every worker and returns when all are done.
  template <typename Body> void run(Body &body) {
    enter(
        [](void *data, Worker worker) { (*static_cast<Body *>(data))(worker); },
        &body);
  }

  /// Inside `run`: a barrier. Returns when all workers have arrived; their
  /// earlier writes are visible then.
  void meet(Worker worker);

  /// Inside `run`, on every worker: calls body(begin, end) for pieces that tile
  /// [0, items). A worker takes the pieces of its own share first, which its
  /// cache has from the stage before, then steals pieces that no worker has
  /// begun: a worker that lost its core holds up one piece, not its share. At
  /// most once between two meetings.
  template <typename Body>
  void share(Worker worker, int64_t items, const Body &body) {
    if (items < sharedItems * worker.count || worker.count == 1) {
      int64_t begin = worker.begin(items), end = worker.end(items);
      if (begin != end)
        body(begin, end);
      return;
    }
    uint64_t meeting = meeting_.value();
    for (int64_t i = 0; i < worker.count; ++i) {
      Worker owner{(worker.index + i) % worker.count, worker.count};
      int64_t first = owner.begin(items), size = owner.end(items) - first;
      for (int64_t piece; (piece = take(owner.index, meeting)) < pieces;)
        body(first + size * piece / pieces,
             first + size * (piece + 1) / pieces);
    }
  }

private:
  using Function = void (*)(void *data, Worker worker);

  /// How many pieces of a worker's share are taken, and in which meeting: a
  /// count from an earlier meeting is worth 0, so it needs no reset.
  struct alignas(64) Taken {
    std::atomic<uint64_t> word{0};
  };

  static constexpr int64_t pieces = 4;
  /// Fewer items per worker are not worth stealing.
  static constexpr int64_t sharedItems = 8;

  Team(unsigned workers, bool isPassive);
  void enter(Function function, void *data);
  void serve(int64_t index);
  /// How often this worker should poll before it sleeps.
  unsigned chooseLooks(int64_t index);
  /// The next piece of the owner's share, or `pieces` if none is left.
  int64_t take(int64_t owner, uint64_t meeting);

  int64_t workers_;
  unsigned looks_;
  std::vector<Taken> taken_;
  std::vector<std::atomic<int>> cores_; // Where each worker last waited.

  std::mutex running_;
  Function function_ = nullptr; // Null tells the threads to end.
  void *data_ = nullptr;
  Gate run_, meeting_;
  alignas(64) std::atomic<int64_t> arrived_{0};
  std::vector<Thread> threads_; // Last: they use the members above.
};

} // namespace kiln

#endif // KILN_RUNTIME_THREAD_TEAM_H
