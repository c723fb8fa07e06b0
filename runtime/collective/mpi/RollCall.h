// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_MPI_ROLLCALL_H
#define KILN_RUNTIME_COLLECTIVE_MPI_ROLLCALL_H

#include "runtime/collective/Link.h"

#include <chrono>
#include <mpi.h>
#include <mutex>

namespace kiln {

/// MPI is told that calls come from any thread, but never two at once: whoever
/// calls it holds this.
extern std::mutex mpiCalls;

/// Ends the process if a call of MPI fails: what is lost with it cannot be
/// brought back, and mpirun then ends the others.
void requireMpi(int result, const char *call);

/// Requests that a thread waits for. What is named here must stay until the
/// process ends if the wait does not come to its end.
struct MpiWait {
  std::string_view collective;
  std::span<MPI_Request> requests;
  std::span<const uint32_t> ranks; // Of the requests.
};

/// All waiting of a process for others. One that has waited too long asks every
/// process, and those that wait answer: they look for questions whenever they
/// look for what they wait for. So who does not answer is the one that hangs,
/// however many wait for each other in between.
class RollCall {
public:
  /// No other messages may go over the communicator.
  RollCall(MPI_Comm communicator, std::chrono::seconds limit);

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }

  /// Room for so many more waits at once.
  void reserve(size_t waits);

  /// Returns nothing when all requests are done, or what was answered. Holds
  /// neither the lock nor a core meanwhile, and allocates nothing in the first
  /// case.
  std::optional<Inquiry> await(const MpiWait &wait);

  /// See Transport.
  Inquiry ask();

private:
  // What is below is called with the lock, except for `inquire`.
  static bool isDone(const MpiWait &wait);
  static void addPending(const MpiWait &wait, std::string &ranks);
  /// What this process waits for, as it is sent: a byte for every rank, which
  /// is 1 if it is awaited, and the name of a collective.
  std::string describe() const;
  Statement parse(std::string_view text) const;
  void say(uint32_t rank, int tag, const std::string &text);
  void listen();
  Inquiry inquire(std::vector<uint32_t> awaited);

  MPI_Comm communicator_;
  std::chrono::seconds limit_;
  uint32_t rank_, size_;
  std::vector<MpiWait> waits_;   // Of some duration, the oldest first.
  std::vector<Statement> heard_; // By rank.
  std::string inbox_, question_;
  std::vector<std::string> answers_; // By rank: it asks once, and then ends.
  std::mutex asking_;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_MPI_ROLLCALL_H
