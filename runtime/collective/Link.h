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

/// What a process says of itself when it is asked.
struct Statement {
  bool isGiven = false;          // One that hangs says nothing.
  std::vector<uint32_t> awaited; // The ranks that it waits for,
  std::string collective;        // and the first collective it does so in.
};

/// What became of asking all processes, because one has waited too long.
struct Inquiry {
  std::vector<uint32_t> awaited;     // Ranks, by the one that asked.
  std::vector<Statement> statements; // By rank.
};

/// Between the members of one group that are in different processes. Messages
/// from one member to another arrive in the order in which they were sent.
class Link {
public:
  virtual ~Link() = default;

  /// Sends and receives at once, as `member`, and returns nothing when all is
  /// done. If that takes too long it asks all processes, and the caller must
  /// end this one. Several members of a process may call it at once.
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
  /// those processes, in the same order, and without a limit of time.
  virtual std::unique_ptr<Link> connect(const std::vector<uint32_t> &ranks) = 0;

  /// Asks all processes on behalf of a thread that waits for another thread of
  /// this process. What is awaited is what any thread here waits for; if that
  /// is nothing, nobody is asked. Otherwise the caller must end the process.
  virtual Inquiry ask() = 0;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_LINK_H
