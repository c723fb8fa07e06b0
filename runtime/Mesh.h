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

/// `size` cut into `count` parts, as the schema says.
struct Cut {
  uint64_t size, count;

  /// Room of every part.
  uint64_t part() const { return (size + count - 1) / count; }
  uint64_t begin(uint64_t number) const {
    return std::min(size, number * part());
  }
  /// Elements of a part, without padding.
  uint64_t valid(uint64_t number) const {
    return begin(number + 1) - begin(number);
  }
};

/// The shape in which a variable is cut.
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

  /// How many parts the axes make.
  uint32_t count(const Axes *axes) const {
    uint32_t count = 1;
    if (axes)
      for (uint32_t axis : *axes)
        count *= axes_.Get(axis)->size();
    return count;
  }

  /// Which of the parts a device has.
  uint32_t part(uint32_t device, const Axes *axes) const {
    uint32_t part = 0;
    if (axes)
      for (uint32_t axis : *axes)
        part = part * axes_.Get(axis)->size() + coordinate(device, axis);
    return part;
  }

  /// The devices that differ from this one only in `axes`, in the order of
  /// their parts.
  std::vector<uint32_t> members(uint32_t device, const Axes *axes) const {
    std::vector<uint32_t> members(count(axes));
    for (uint32_t other = 0; other < devices(); ++other)
      if (isMember(device, other, axes))
        members[part(other, axes)] = other;
    return members;
  }

private:
  bool isMember(uint32_t device, uint32_t other, const Axes *axes) const {
    for (uint32_t axis = 0; axis < axes_.size(); ++axis) {
      bool isFree = false;
      if (axes)
        for (uint32_t each : *axes)
          isFree |= each == axis;
      if (!isFree && coordinate(device, axis) != coordinate(other, axis))
        return false;
    }
    return true;
  }

  const flatbuffers::Vector<flatbuffers::Offset<artifact::MeshAxis>> &axes_;
};

} // namespace kiln

#endif // KILN_RUNTIME_MESH_H
