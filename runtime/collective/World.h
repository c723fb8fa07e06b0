// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_WORLD_H
#define KILN_RUNTIME_COLLECTIVE_WORLD_H

#include "runtime/Status.h"
#include "runtime/collective/Link.h"

#include <chrono>

namespace kiln {

/// The processes that run one artifact together. All of them call the functions
/// marked collective, in the same order, each from one thread. A process that
/// does not arrive in time ends the caller, as in a Group.
class World {
public:
  /// The processes named by the environment: null if this one is alone.
  /// Collective.
  static Expected<std::unique_ptr<World>> open();
  /// Whether the environment names several.
  static bool isOneOfMany();
  World(std::unique_ptr<Transport> transport, std::chrono::seconds limit);

  uint32_t rank() const { return transport_->rank(); }
  uint32_t size() const { return transport_->size(); }

  /// Links the members of a group, which are in these processes. Called by
  /// those processes, in the same order.
  std::unique_ptr<Link> connect(const std::vector<uint32_t> &ranks);

  /// The texts of all processes, by rank. Collective.
  std::vector<std::string> gather(const std::string &text);
  /// The greatest number over all processes. Collective; allocates nothing.
  uint64_t maximum(uint64_t number);

  /// Bytes from one process to another, in order.
  void send(uint32_t rank, std::span<const std::byte> bytes);
  void receive(uint32_t rank, std::span<std::byte> bytes);

  /// See Transport; from any thread.
  Inquiry ask() { return transport_->ask(); }

private:
  void transfer(std::span<const Message> sends,
                std::span<const Message> receives);
  void sendText(uint32_t rank, const std::string &text);
  std::string receiveText(uint32_t rank);

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Link> link_; // Of all processes; goes before the transport.
  std::chrono::seconds limit_;
};

/// Returns, on every rank, the lowest failing rank's status, with its name;
/// without a world, `status`. Collective.
Status agree(World *world, const Status &status);

/// Fails on all processes if they were given different values, and names the
/// ranks that differ from most. `what` is a noun. Collective.
Status requireSame(World *world, const std::string &what,
                   const std::string &given, Code code);

/// The library that knows MPI: where it is, or empty if it was not built; and
/// its one function, which returns null and an error, or the transport.
std::string findMpiLibrary();
using OpenTransportFunction = Transport *(std::chrono::seconds limit,
                                          std::string &error);
constexpr const char *openTransportSymbol = "kilnOpenMpiTransport";

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_WORLD_H
