// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_STALL_H
#define KILN_RUNTIME_COLLECTIVE_STALL_H

#include "runtime/Status.h"
#include "runtime/collective/Link.h"

#include <chrono>
#include <functional>

namespace kiln {

inline std::string rankName(uint32_t rank) {
  return "rank " + std::to_string(rank);
}
/// "rank 1", "ranks 1, 2 and 3".
std::string nameRanks(const std::vector<uint32_t> &ranks);

/// Why a process timed out. The awaited rank may itself be blocked, so the
/// chain of waits is followed to the rank at its end.
class Stall {
public:
  explicit Stall(const Inquiry &inquiry);

  /// Whether an awaited rank, directly or through blocked ones, does not
  /// answer.
  bool hasMissing() const { return !missing_.empty(); }

  /// "rank 3 has not come"; the function gives "rank 3" and any details.
  std::string blame(const std::function<std::string(uint32_t)> &name) const;
  /// "rank 1, which waits for rank 3 in 'all_reduce'": the chain to the first
  /// missing rank, or round to a rank named before.
  std::string explain() const;

private:
  /// A rank blocked on another.
  struct Hop {
    uint32_t rank;
    std::string collective; // In which it is blocked on the next.
  };

  std::vector<uint32_t> missing_;
  std::vector<uint32_t> silent_; // Unresponsive, but not awaited.
  std::vector<Hop> path_;
};

/// Ends a collective that cannot be unwound: a message and exit code 7.
[[noreturn]] void endTimedOut(const std::string &collective,
                              const std::string &blame,
                              std::chrono::seconds limit,
                              const std::string &waits);
/// The same for any other error.
[[noreturn]] void endWithError(const std::string &message, Code code);

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_STALL_H
