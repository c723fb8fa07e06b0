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

/// Why a process waits in vain. Whom it waits for may wait itself: who is to
/// blame is found behind that.
class Stall {
public:
  explicit Stall(const Inquiry &inquiry);

  /// Whether some that are awaited, be it by way of others, do not answer.
  bool hasMissing() const { return !missing_.empty(); }

  /// "rank 3 has not come"; the function says "rank 3", and what else is known
  /// of it.
  std::string blame(const std::function<std::string(uint32_t)> &name) const;
  /// "rank 1, which waits for rank 3 in 'all_reduce'": the way to the first
  /// that is missing, or round to one that was named before.
  std::string explain() const;

private:
  /// A rank that waits for another.
  struct Hop {
    uint32_t rank;
    std::string collective; // In which it waits for the next.
  };

  std::vector<uint32_t> missing_;
  std::vector<uint32_t> silent_; // Nobody waits for them yet.
  std::vector<Hop> path_;
};

/// The end of a collective that cannot be unwound: a message and exit code 7.
[[noreturn]] void endTimedOut(const std::string &collective,
                              const std::string &blame,
                              std::chrono::seconds limit,
                              const std::string &waits);
/// The same for any other error.
[[noreturn]] void endWithError(const std::string &message, Code code);

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_STALL_H
