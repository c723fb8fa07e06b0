// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Stall.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace kiln {

Stall::Stall(const Inquiry &inquiry) {
  const std::vector<Statement> &statements = inquiry.statements;
  // Breadth-first over the waits; each rank keeps the waiter that reached it.
  std::vector<uint32_t> reached;
  std::vector<std::optional<uint32_t>> waiter(statements.size());
  std::vector<bool> isReached(statements.size());
  auto reach = [&](uint32_t rank, std::optional<uint32_t> from) {
    if (isReached[rank])
      return;
    isReached[rank] = true;
    waiter[rank] = from;
    reached.push_back(rank);
  };
  for (uint32_t rank : inquiry.awaited)
    reach(rank, std::nullopt);
  for (size_t i = 0; i < reached.size(); ++i)
    for (uint32_t next : statements[reached[i]].awaited)
      reach(next, reached[i]);
  for (uint32_t rank : reached)
    if (!statements[rank].isGiven)
      missing_.push_back(rank);
  for (uint32_t rank = 0; rank < statements.size(); ++rank)
    if (!statements[rank].isGiven && !isReached[rank])
      silent_.push_back(rank);

  auto add = [&](uint32_t rank) {
    path_.push_back({rank, statements[rank].collective});
  };
  if (hasMissing()) {
    std::optional<uint32_t> rank = missing_.front();
    for (; rank; rank = waiter[*rank])
      add(*rank);
    std::reverse(path_.begin(), path_.end());
    return;
  }
  const std::vector<uint32_t> *awaited = &inquiry.awaited;
  for (bool isNew = true; isNew && !awaited->empty();) {
    uint32_t rank = awaited->front();
    isNew = std::none_of(path_.begin(), path_.end(),
                         [&](const Hop &hop) { return hop.rank == rank; });
    add(rank);
    awaited = &statements[rank].awaited;
  }
}

static std::string listRanks(const std::vector<uint32_t> &ranks,
                             const std::function<std::string(uint32_t)> &name) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0                  ? ""
             : i + 1 == ranks.size() ? " and "
                                     : ", ") +
            name(ranks[i]);
  return text;
}

std::string nameRanks(const std::vector<uint32_t> &ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") +
         listRanks(ranks, [](uint32_t rank) { return std::to_string(rank); });
}

std::string
Stall::blame(const std::function<std::string(uint32_t)> &name) const {
  if (!hasMissing())
    return "all ranks answer, but none goes on";
  return listRanks(missing_, name) +
         (missing_.size() == 1 ? " has not come" : " have not come");
}

std::string Stall::explain() const {
  std::string text;
  for (size_t i = 0; i < path_.size(); ++i) {
    text += (i == 0 ? "" : ", which waits for ") + rankName(path_[i].rank);
    if (i != 0)
      text += " in '" + path_[i - 1].collective + "'";
  }
  if (!silent_.empty())
    text += "; " + listRanks(silent_, rankName) +
            (silent_.size() == 1 ? " does" : " do") + " not answer either";
  return text;
}

void endWithError(const std::string &message, Code code) {
  std::fprintf(stderr, "kiln: error: %s\n", message.c_str());
  ::_exit(static_cast<int>(code));
}

void endTimedOut(const std::string &collective, const std::string &blame,
                 std::chrono::seconds limit, const std::string &waits) {
  endWithError("collective '" + collective + "' timed out: " + blame +
                   " within " + std::to_string(limit.count()) +
                   " s (KILN_COLLECTIVE_TIMEOUT), " + waits,
               Code::timedOut);
}

} // namespace kiln
