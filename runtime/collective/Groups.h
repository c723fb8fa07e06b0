// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_GROUPS_H
#define KILN_RUNTIME_COLLECTIVE_GROUPS_H

#include "runtime/collective/Group.h"
#include "runtime/collective/World.h"

#include <map>

namespace kiln {

/// All groups of an artifact that have a member in this process, made once.
class Groups {
public:
  /// Devices [first, first + count) are in this process. Processes must call
  /// it with the same artifact, at the same time; the world may be null if
  /// there is one.
  Groups(const artifact::Index &index, uint32_t first, uint32_t count,
         World *world);

  /// The group of a device in this process over the axes of one of the
  /// artifact's collectives.
  Group &find(uint32_t device, const Axes &axes) const;

private:
  void add(const std::vector<uint32_t> &members, uint32_t first, uint32_t count,
           World *world);

  const Mesh mesh_;
  std::map<std::vector<uint32_t>, std::unique_ptr<Group>> groups_;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_GROUPS_H
