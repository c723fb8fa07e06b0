// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_MESH_H
#define KILN_RUNTIME_MESH_H

#include "runtime/artifact/Artifact_generated.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kiln {

/// Mesh axes, major first; null is none.
using Axes = flatbuffers::Vector<uint32_t>;

/// `size` cut into `count` shards, as the schema says.
struct Cut {
  uint64_t size, count;

  /// Elements of every shard, padding included.
  uint64_t part() const { return (size + count - 1) / count; }
  uint64_t begin(uint64_t number) const {
    return std::min(size, number * part());
  }
  /// Elements of shard `number`, without padding.
  uint64_t valid(uint64_t number) const {
    return begin(number + 1) - begin(number);
  }
};

/// The shape in which a variable is sharded.
inline const flatbuffers::Vector<int64_t> &
viewOf(const artifact::Variable &variable) {
  return variable.view() && variable.view()->size() ? *variable.view()
                                                    : *variable.shape();
}

/// Named axes over the devices of an artifact. The artifact must outlive it.
class Mesh {
public:
  explicit Mesh(const artifact::Index &index) : axes_(*index.mesh()) {}

  uint32_t axes() const { return axes_.size(); }

  uint32_t devices() const {
    uint32_t count = 1;
    for (const artifact::MeshAxis *axis : axes_)
      count *= axis->size();
    return count;
  }

  uint32_t coordinate(uint32_t device, uint32_t axis) const {
    for (uint32_t i = axes_.size() - 1; i != axis; --i)
      device /= axes_.Get(i)->size();
    return device % axes_.Get(axis)->size();
  }

  /// Product of the axis sizes: the number of shards they make.
  uint32_t count(const Axes *axes) const {
    uint32_t count = 1;
    if (axes)
      for (uint32_t axis : *axes)
        count *= axes_.Get(axis)->size();
    return count;
  }

  /// Index of a device's shard.
  uint32_t part(uint32_t device, const Axes *axes) const {
    uint32_t part = 0;
    if (axes)
      for (uint32_t axis : *axes)
        part = part * axes_.Get(axis)->size() + coordinate(device, axis);
    return part;
  }

  /// The device with this shard that has coordinate 0 on all other axes.
  uint32_t firstDevice(uint32_t part, const Axes *axes) const {
    uint32_t device = 0;
    for (uint32_t i = axes ? axes->size() : 0; i-- > 0;) {
      uint32_t size = axes_.Get(axes->Get(i))->size();
      device += part % size * step(axes->Get(i));
      part /= size;
    }
    return device;
  }

  /// Stride of an axis in device numbers.
  uint32_t step(uint32_t axis) const {
    uint32_t step = 1;
    for (uint32_t i = axis + 1; i < axes_.size(); ++i)
      step *= axes_.Get(i)->size();
    return step;
  }

  /// The devices that differ from this one only in `axes`, in the order of
  /// their shards.
  std::vector<uint32_t> members(uint32_t device, const Axes *axes) const {
    uint32_t first = device - firstDevice(part(device, axes), axes);
    std::vector<uint32_t> members(count(axes));
    for (uint32_t part = 0; part < members.size(); ++part)
      members[part] = first + firstDevice(part, axes);
    return members;
  }

private:
  const flatbuffers::Vector<flatbuffers::Offset<artifact::MeshAxis>> &axes_;
};

} // namespace kiln

#endif // KILN_RUNTIME_MESH_H
