// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_LINK_H
#define KILN_RUNTIME_COLLECTIVE_LINK_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// Bytes to or from a member of a group.
struct Message {
  uint32_t member;
  std::byte *bytes;
  uint64_t count;
};

/// A process's answer to an inquiry.
struct Statement {
  bool isGiven = false;          // A process that hangs gives none.
  std::vector<uint32_t> awaited; // The ranks that block it,
  std::string collective;        // and the first collective blocked so.
};

/// Outcome of asking all processes after a wait timed out.
struct Inquiry {
  std::vector<uint32_t> awaited;     // Ranks that block the one that asked.
  std::vector<Statement> statements; // By rank.
};

/// Between the members of one group that are in different processes. Messages
/// from one member to another arrive in the order in which they were sent.
class Link {
public:
  virtual ~Link() = default;

  /// Sends and receives at once, as `member`, and returns nothing when all is
  /// done. On a timeout it asks all processes, and the caller must end this
  /// one. Several members of a process may call it at once.
  virtual std::optional<Inquiry>
  transfer(uint32_t member, std::string_view collective,
           std::span<const Message> sends,
           std::span<const Message> receives) = 0;

  /// The process of a member.
  virtual uint32_t rankOf(uint32_t member) const = 0;
};

/// How the processes of a run reach each other.
class Transport {
public:
  virtual ~Transport() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;

  /// Links the members of a group, which are in these processes. Called by
  /// those processes, in the same order, and without a time limit.
  virtual std::unique_ptr<Link> connect(const std::vector<uint32_t> &ranks) = 0;

  /// Asks all processes on behalf of a thread blocked on another thread of this
  /// process. `awaited` are the ranks that block any thread here; if none do,
  /// no process is asked. Otherwise the caller must end the process.
  virtual Inquiry ask() = 0;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_LINK_H
