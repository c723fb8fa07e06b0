// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_TILING_H
#define KILN_RUNTIME_TILING_H

#include "runtime/Mesh.h"

#include <algorithm>
#include <vector>

namespace kiln {

/// Maps each element of a variable's full tensor to the shard that holds it and
/// its offset there. The only code that does; slices and collectives shard
/// single dimensions, with the same Cut.
class Tiling {
public:
  /// Elements contiguous both in the full tensor and in a shard.
  struct Run {
    uint32_t part;
    uint64_t local, whole, count; // Offsets in both.
  };

  /// Artifact and mesh must outlive it.
  Tiling(const Mesh &mesh, const artifact::Variable &variable);

  /// Elements of the full tensor.
  uint64_t elements() const { return elements_; }
  /// Elements of every local shard, padding included.
  uint64_t localElements() const { return flat_.part(); }
  bool isPadded() const { return elements_ != parts_ * localElements(); }

  uint32_t parts() const { return static_cast<uint32_t>(parts_); }
  /// Index of a device's shard. Replicas have the same.
  uint32_t partOf(uint32_t device) const;
  /// The first device that has a shard.
  uint32_t firstDeviceOf(uint32_t part) const;

  /// Calls function(run) with runs that tile elements [begin, end) of the full
  /// tensor, in order.
  template <typename Function>
  void forEachRun(uint64_t begin, uint64_t end, Function function) const {
    while (begin < end) {
      Run run = find(begin);
      run.count = std::min(run.count, end - begin);
      function(run);
      begin += run.count;
    }
  }

private:
  struct Dimension {
    Cut cut;
    const Axes *axes;
  };

  /// The run from an element of the full tensor on.
  Run find(uint64_t element) const;

  const Mesh mesh_;
  std::vector<Dimension> dimensions_; // Up to the last sharded one.
  uint64_t inner_ = 1;                // Elements of the dimensions after it.
  uint64_t elements_ = 1;
  Cut flat_{1, 1}; // Of the local shard.
  const Axes *flatAxes_;
  uint64_t parts_ = 1;
};

} // namespace kiln

#endif // KILN_RUNTIME_TILING_H
