// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_LINK_H
#define KILN_RUNTIME_COLLECTIVE_LINK_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace kiln {

/// Bytes to or from a member of a group.
struct Message {
  uint32_t member;
  std::byte *bytes;
  uint64_t count;
};

/// Between the members of one group that are in different processes. Messages
/// from one member to another arrive in the order in which they were sent.
class Link {
public:
  virtual ~Link() = default;

  /// Sends and receives at once, as `member`, and returns when all is done; or
  /// a member that did not do its part in time. Several members of a process
  /// may call it at once.
  virtual std::optional<uint32_t> transfer(uint32_t member,
                                           std::span<const Message> sends,
                                           std::span<const Message> receives,
                                           std::chrono::seconds limit) = 0;

  /// The process of a member.
  virtual uint32_t rankOf(uint32_t member) const = 0;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_LINK_H
