// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_WORLD_H
#define KILN_RUNTIME_COLLECTIVE_WORLD_H

#include "runtime/Status.h"
#include "runtime/collective/Link.h"

#include <memory>
#include <string>
#include <vector>

namespace kiln {

/// The processes that run one artifact together. All of them call what is
/// marked as collective, in the same order. A process that does not come in
/// time ends the caller, as in a Group.
class World {
public:
  /// The processes that the environment tells of: null if this one is alone.
  /// Collective.
  static Expected<std::unique_ptr<World>> open();
  virtual ~World() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;

  /// Links the members of a group, which are in these processes. Called by
  /// those processes, in the same order.
  virtual std::unique_ptr<Link> connect(const std::vector<uint32_t> &ranks) = 0;

  /// What every process gave, by rank. Collective.
  virtual std::vector<std::string> gather(const std::string &text) = 0;
  /// The greatest of what the processes gave. Collective; allocates nothing.
  virtual uint64_t maximum(uint64_t number) = 0;

  /// Bytes from one process to another, in order.
  virtual void send(uint32_t rank, std::span<const std::byte> bytes) = 0;
  virtual void receive(uint32_t rank, std::span<std::byte> bytes) = 0;
};

/// The library that knows MPI: where it is, or empty if it was not built; and
/// its one function, which returns null and an error, or the world.
std::string findMpiLibrary();
using OpenWorldFunction = World *(std::chrono::seconds limit,
                                  std::string &error);
constexpr const char *openWorldSymbol = "kilnOpenMpiWorld";

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_WORLD_H
