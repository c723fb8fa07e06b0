// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_VARIABLES_H
#define KILN_RUNTIME_SESSION_VARIABLES_H

#include "runtime/Tiling.h"
#include "runtime/collective/World.h"
#include "runtime/device/Device.h"
#include "runtime/thread/Team.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace kiln {

/// The variables of a run as full tensors, whatever shards the devices of this
/// and of other processes hold. A variable is named by its number in the
/// artifact. Devices must have reserved their memory and run no program.
class Variables {
public:
  using Devices = std::span<const std::unique_ptr<Device>>;

  /// `devices` are all of this process, in ascending order. The arguments must
  /// outlive it; the world may be null.
  Variables(const Artifact &artifact, World *world, Team &host,
            Devices devices);

  /// How a variable is sharded.
  const Tiling &tiling(size_t number) const { return tilings_[number]; }
  /// Bytes of one element.
  uint64_t elementBytes(size_t number) const;
  uint64_t bytes(size_t number) const {
    return tilings_[number].elements() * elementBytes(number);
  }
  /// False if the devices only check: values need neither be read nor computed.
  bool areKept() const { return devices_.front()->keepsValues(); }

  /// Gives every variable its initial value, by all workers of the host.
  Status initialise(uint64_t seed);

  /// Whether variables were written since the last call: what programs derive
  /// from them must follow.
  bool takeChanges() { return std::exchange(isChanged_, false); }

  /// Elements of a full tensor from `first` on. Of several processes only the
  /// first may read, while the rest `serveReads`.
  Status read(size_t number, uint64_t first, std::span<std::byte> bytes) const;
  /// Every process writes the given elements to its own devices.
  Status write(size_t number, uint64_t first, std::span<const std::byte> bytes);

  /// Answers the first process until it calls `endReads`.
  void serveReads() const;
  void endReads() const;

private:
  struct Scratch; // Of one worker.

  const artifact::Variable &variable(size_t number) const {
    return *artifact_.image().variables()->Get(static_cast<uint32_t>(number));
  }
  /// Offset of a variable's shard on a device.
  static uint64_t offset(size_t number, const Device &device);
  Status initialiseShard(size_t number, uint64_t seed, Device &device,
                         std::span<Scratch> scratch);
  /// Calls function(run, owner) for the elements whose owner, the first device
  /// that holds them, is in a process.
  template <typename Function>
  void forEachOwned(uint32_t rank, size_t number, uint64_t first,
                    uint64_t count, Function function) const;
  /// Reads the elements that devices of this process own, each run to
  /// target(run).
  template <typename Target>
  Status readOwned(size_t number, uint64_t first, uint64_t count,
                   Target target) const;
  uint64_t countOwned(uint32_t rank, size_t number, uint64_t first,
                      uint64_t count) const;
  Status readRemote(uint32_t rank, size_t number, uint64_t first,
                    std::span<std::byte> bytes) const;
  uint32_t rank() const { return world_ ? world_->rank() : 0; }

  const Artifact &artifact_;
  World *world_;
  Team &host_;
  Devices devices_;
  std::vector<Tiling> tilings_;
  bool isChanged_ = false;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_VARIABLES_H
