// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_GROUP_H
#define KILN_RUNTIME_COLLECTIVE_GROUP_H

#include "runtime/Status.h"
#include "runtime/collective/Exchange.h"
#include "runtime/collective/Link.h"
#include "runtime/collective/Stall.h"
#include "runtime/thread/Gate.h"

#include <memory>

namespace kiln {

class World;

/// How collectives are run, for all devices of a process.
struct CollectiveSettings {
  /// After this long a missing member is given up.
  std::chrono::seconds limit{300};
  /// All processes, since another process may block members of this one; null
  /// if this one is alone.
  World *world = nullptr;
  /// Extra delay per pull: a slow link, for tests.
  std::chrono::microseconds delay{0};

  /// From KILN_COLLECTIVE_TIMEOUT and KILN_FAULT; `usage` if they are
  /// malformed.
  static Expected<CollectiveSettings> fromEnvironment();
};

/// State of a device for its collectives.
struct Endpoint {
  Endpoint(uint32_t device, const CollectiveSettings &settings)
      : device(device), settings(settings), block(blockBytes) {}

  /// Elements are combined in blocks that stay in the nearest cache.
  static constexpr uint64_t blockBytes = 16384;
  /// Room for messages to and from other processes.
  static constexpr uint64_t windowBytes = uint64_t{1} << 20;

  uint32_t device;
  CollectiveSettings settings;
  uint64_t receivedBytes = 0; // From other devices, since the start.
  std::vector<std::byte> block;
  std::vector<std::byte> window; // Empty where all members are in the process.
  std::vector<Message> sends, receives;
};

/// The members of a collective that are in this process. Members pull: they
/// read another member's memory, or receive a message from a member in another
/// process. All combine in the order of the members, so results depend neither
/// on timing nor on processes.
///
/// A member that does not arrive in time ends the process with exit code 7: the
/// threads blocked on it cannot be unwound.
class Group {
public:
  /// Devices by member index; `isLocal` says which are in this process. The
  /// link is null if all are.
  Group(std::vector<uint32_t> devices, const std::vector<bool> &isLocal,
        std::unique_ptr<Link> link);

  uint32_t memberOf(uint32_t device) const;
  bool hasRemotes() const { return link_ != nullptr; }

  /// Takes part as `member`. Returns when its targets are written and its
  /// sources are no longer read. `arrived` is called when all members in the
  /// process have arrived.
  template <typename Arrived>
  void run(uint32_t member, const Exchange &exchange, uint64_t repetition,
           Endpoint &endpoint, Arrived arrived) {
    Turn turn{member, exchange, repetition, endpoint};
    begin(turn);
    arrived();
    transfer(turn);
  }

private:
  struct Turn {
    uint32_t member;
    const Exchange &exchange;
    uint64_t repetition;
    Endpoint &endpoint;
  };
  /// A member's state as other members in the process read it.
  struct Seat {
    bool isLocal = false;
    const Exchange *exchange = nullptr;
    uint64_t repetition = 0;
    Gate gate; // Counts its meetings.
  };

  void begin(const Turn &turn);
  void transfer(const Turn &turn);
  /// Returns when all members in the process have arrived here.
  void meet(const Turn &turn);
  void reduce(const Turn &turn);
  void gather(const Turn &turn);
  void combine(const Turn &turn, uint64_t begin, uint64_t end);
  void takeParts(const Turn &turn, uint64_t begin, uint64_t end);
  /// Sends elements [begin, end) of a shard, read at source(run), to each
  /// member in another process and receives a shard from it into the window:
  /// sends its own shard and receives theirs, or the reverse.
  template <typename Source>
  void exchangeMessages(const Turn &turn, uint64_t begin, uint64_t end,
                        bool isOwnSent, Source source) const;
  void clearPadding(const Turn &turn) const;
  void delay(const Turn &turn) const;
  /// Calls body(begin, end) for each range of a shard that is moved at once.
  template <typename Body> void forEachRound(const Turn &turn, Body body) const;
  /// Ends the process: a local member is missing, or remote ones as `stall`
  /// says.
  [[noreturn]] void giveUp(const Turn &turn, uint32_t missing) const;
  [[noreturn]] void giveUp(const Turn &turn, const Stall &stall,
                           const std::string &waits) const;

  std::vector<uint32_t> devices_;
  std::unique_ptr<Seat[]> seats_;
  std::vector<uint32_t> locals_, remotes_; // Members.
  std::unique_ptr<Link> link_;
  uint64_t slotBytes_ = 0; // Limit of one message; 0 without messages.
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_GROUP_H
