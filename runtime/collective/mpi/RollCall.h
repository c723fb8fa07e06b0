// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_MPI_ROLLCALL_H
#define KILN_RUNTIME_COLLECTIVE_MPI_ROLLCALL_H

#include "runtime/collective/Link.h"

#include <chrono>
#include <mpi.h>
#include <mutex>

namespace kiln {

/// MPI is told that calls come from any thread, but never two at once: a caller
/// of MPI holds this lock.
extern std::mutex mpiCalls;

/// Ends the process if a call of MPI fails: a lost message cannot be recovered,
/// and mpirun then ends all ranks.
void requireMpi(int result, const char *call);

/// Requests that a thread waits for. If the wait times out, the referenced
/// memory must live until the process ends.
struct MpiWait {
  std::string_view collective;
  std::span<MPI_Request> requests;
  std::span<const uint32_t> ranks; // Of the requests.
};

/// All waits of a process for other processes. One that times out asks every
/// process, and blocked ones answer: they poll for questions whenever they poll
/// for their requests. So the rank that does not answer is the one that hangs,
/// however many are blocked in between.
class RollCall {
public:
  /// No other messages may go over the communicator.
  RollCall(MPI_Comm communicator, std::chrono::seconds limit);

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }

  /// Reserves room for so many more concurrent waits.
  void reserve(size_t waits);

  /// Returns nothing when all requests are done, or the answers. Holds neither
  /// the lock nor a core meanwhile, and allocates nothing in the first case.
  std::optional<Inquiry> await(const MpiWait &wait);

  /// See Transport.
  Inquiry ask();

private:
  // Functions below are called with the lock held, except for `inquire`.
  static bool isDone(const MpiWait &wait);
  static void addPending(const MpiWait &wait, std::string &ranks);
  /// The message that describes this process's waits: a byte for every rank, 1
  /// if it is awaited, and the name of a collective.
  std::string describe() const;
  Statement parse(std::string_view text) const;
  void say(uint32_t rank, int tag, const std::string &text);
  void listen();
  Inquiry inquire(std::vector<uint32_t> awaited);

  MPI_Comm communicator_;
  std::chrono::seconds limit_;
  uint32_t rank_, size_;
  std::vector<MpiWait> waits_;   // Only long waits, the oldest first.
  std::vector<Statement> heard_; // By rank.
  std::string inbox_, question_;
  std::vector<std::string> answers_; // By rank, each of which asks once.
  std::mutex asking_;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_MPI_ROLLCALL_H
