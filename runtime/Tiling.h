// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_TILING_H
#define KILN_RUNTIME_TILING_H

#include "runtime/Mesh.h"

#include <algorithm>
#include <vector>

namespace kiln {

/// Where the elements of a variable lie: which part holds an element of the
/// whole tensor, and at which place of that part. The only code that tells;
/// slices and collectives cut single dimensions, by Cut as this does.
class Tiling {
public:
  /// Elements that are contiguous in the whole tensor and in a part.
  struct Run {
    uint32_t part;
    uint64_t local, whole, count; // Places of the first in both.
  };

  /// Artifact and mesh must outlive it.
  Tiling(const Mesh &mesh, const artifact::Variable &variable);

  /// Elements of the whole tensor.
  uint64_t elements() const { return elements_; }
  /// Elements that every device has room for, padding included.
  uint64_t localElements() const { return flat_.part(); }
  bool isPadded() const { return elements_ != parts_ * localElements(); }

  uint32_t parts() const { return static_cast<uint32_t>(parts_); }
  /// The part that a device has. Devices may have the same.
  uint32_t partOf(uint32_t device) const;
  /// The first device that has a part.
  uint32_t firstDeviceOf(uint32_t part) const;

  /// Calls function(run) with runs that tile elements [begin, end) of the whole
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

  /// The run from an element of the whole tensor on.
  Run find(uint64_t element) const;

  const Mesh mesh_;
  std::vector<Dimension> dimensions_; // Up to the last one that is cut.
  uint64_t inner_ = 1;                // Elements of those after it.
  uint64_t elements_ = 1;
  Cut flat_{1, 1}; // Of the local tensor.
  const Axes *flatAxes_;
  uint64_t parts_ = 1;
};

} // namespace kiln

#endif // KILN_RUNTIME_TILING_H
