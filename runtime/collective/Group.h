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
  /// After which a member that has not come is given up.
  std::chrono::seconds limit{300};
  /// All processes, of which one may be what keeps members of this one from
  /// coming; null if this one is alone.
  World *world = nullptr;
  /// What every pull takes longer: a slow link, for tests.
  std::chrono::microseconds delay{0};

  /// From KILN_COLLECTIVE_TIMEOUT and KILN_FAULT; `usage` if they are not what
  /// they should be.
  static Expected<CollectiveSettings> fromEnvironment();
};

/// What a device keeps for its collectives.
struct Endpoint {
  Endpoint(uint32_t device, const CollectiveSettings &settings)
      : device(device), settings(settings), block(blockBytes) {}

  /// A part of what is combined that stays in the nearest cache.
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

/// The devices that run a collective together, as far as they are in this
/// process. What a member needs it takes from the member that has it: it reads
/// its memory, or gets a message if that is in another process. All combine in
/// the order of the members, so results depend neither on time nor on
/// processes.
///
/// A member that does not come in time ends the process with exit code 7: the
/// threads that wait for it cannot be unwound.
class Group {
public:
  /// Members by number; `isLocal` says which are in this process. The link is
  /// null if all are.
  Group(std::vector<uint32_t> devices, const std::vector<bool> &isLocal,
        std::unique_ptr<Link> link);

  uint32_t memberOf(uint32_t device) const;
  bool hasRemotes() const { return link_ != nullptr; }

  /// Takes part as `member`. Returns when its targets are written and its
  /// sources are no longer read. `arrived` is called when all members in the
  /// process have come.
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
  /// What a member shows to the others in the process.
  struct Seat {
    bool isLocal = false;
    const Exchange *exchange = nullptr;
    uint64_t repetition = 0;
    Gate gate; // How often it has met the others.
  };

  void begin(const Turn &turn);
  void transfer(const Turn &turn);
  /// Returns when all members in the process have come here.
  void meet(const Turn &turn);
  void reduce(const Turn &turn);
  void gather(const Turn &turn);
  void combine(const Turn &turn, uint64_t begin, uint64_t end);
  void takeParts(const Turn &turn, uint64_t begin, uint64_t end);
  /// Elements [begin, end) of a part, which are at source(run), go to each
  /// member in another process, and those of a part come from it into the
  /// window: its own part goes and theirs come, or the other way round.
  template <typename Source>
  void exchangeMessages(const Turn &turn, uint64_t begin, uint64_t end,
                        bool isOwnSent, Source source) const;
  void clearPadding(const Turn &turn) const;
  void delay(const Turn &turn) const;
  /// Calls body(begin, end) for the ranges of a part that are moved at once.
  template <typename Body> void forEachRound(const Turn &turn, Body body) const;
  /// Ends the process: a member in it has not come, or what is told of others.
  [[noreturn]] void giveUp(const Turn &turn, uint32_t missing) const;
  [[noreturn]] void giveUp(const Turn &turn, const Stall &stall,
                           const std::string &waits) const;

  std::vector<uint32_t> devices_;
  std::unique_ptr<Seat[]> seats_;
  std::vector<uint32_t> locals_, remotes_; // Members.
  std::unique_ptr<Link> link_;
  uint64_t slotBytes_ = 0; // That one message may have; 0 if there are none.
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_GROUP_H
