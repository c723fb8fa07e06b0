// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Groups.h"

namespace kiln {

/// Calls function(axes) for every collective of an artifact, in its order.
template <typename Function>
static void forEachCollective(const artifact::Index &index, Function function) {
  for (const artifact::Image *image : *index.images())
    for (const artifact::Program *program : *image->programs())
      for (const artifact::Phase *phase : *program->phases())
        for (const artifact::Command *command : *phase->commands())
          if (const artifact::Collective *collective =
                  command->action_as_Collective())
            function(*collective->axes());
}

Groups::Groups(const artifact::Index &index, uint32_t first, uint32_t count,
               World *world)
    : mesh_(index) {
  // By the mesh and not by the local devices: processes create shared groups in
  // the same order.
  forEachCollective(index, [&](const Axes &axes) {
    for (uint32_t device = 0; device < mesh_.devices(); ++device)
      if (mesh_.part(device, &axes) == 0)
        add(mesh_.members(device, &axes), first, count, world);
  });
}

void Groups::add(const std::vector<uint32_t> &members, uint32_t first,
                 uint32_t count, World *world) {
  if (groups_.contains(members))
    return;
  std::vector<bool> isLocal;
  size_t locals = 0;
  for (uint32_t member : members) {
    isLocal.push_back(member >= first && member < first + count);
    locals += isLocal.back();
  }
  if (locals == 0)
    return;
  std::unique_ptr<Link> link;
  if (locals != members.size()) {
    std::vector<uint32_t> ranks;
    for (uint32_t member : members)
      ranks.push_back(member / count);
    link = world->connect(ranks);
  }
  groups_[members] = std::make_unique<Group>(members, isLocal, std::move(link));
}

Group &Groups::find(uint32_t device, const Axes &axes) const {
  return *groups_.at(mesh_.members(device, &axes));
}

} // namespace kiln
