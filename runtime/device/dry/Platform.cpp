// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/dry/Platform.h"
#include "runtime/device/dry/CheckCollectives.h"
#include "runtime/device/dry/CheckHazards.h"
#include "runtime/device/dry/Device.h"

#include <algorithm>

namespace kiln::dry {

Expected<std::unique_ptr<kiln::Platform>>
Platform::open(const PlatformOptions &options) {
  return std::unique_ptr<kiln::Platform>(new Platform(options.artifact));
}

Expected<std::unique_ptr<kiln::Device>> Platform::start(uint32_t number) {
  return std::unique_ptr<kiln::Device>(
      std::make_unique<Device>(*this, number, artifact_.imageOf(number)));
}

Status Platform::connect() {
  const artifact::Index &index = artifact_.index();
  received_.assign(index.images()->size(), {});
  std::vector<bool> isChecked(index.images()->size());
  for (uint32_t device = 0; device < index.devices()->size(); ++device) {
    uint32_t image = index.devices()->Get(device)->image();
    if (isChecked[image])
      continue;
    isChecked[image] = true;
    for (const artifact::Program *program :
         *artifact_.image(image).programs()) {
      if (Status status = checkHazards(artifact_, *program, device);
          !status.ok())
        return status;
      received_[image].push_back(countBytes(*program));
    }
  }
  uint32_t programs = artifact_.image().programs()->size();
  for (uint32_t program = 0; program < programs; ++program)
    if (Status status = checkCollectives(artifact_, program); !status.ok())
      return status;
  return Status();
}

std::vector<Platform::Received>
Platform::countBytes(const artifact::Program &program) const {
  Mesh mesh(artifact_.index());
  std::vector<Received> totals;
  for (const artifact::Phase *phase : *program.phases())
    for (const artifact::Command *command : *phase->commands()) {
      const artifact::Collective *collective = command->action_as_Collective();
      if (!collective)
        continue;
      auto total =
          std::find_if(totals.begin(), totals.end(), [&](const Received &each) {
            return std::equal(each.axes->begin(), each.axes->end(),
                              collective->axes()->begin(),
                              collective->axes()->end());
          });
      uint32_t members = mesh.count(collective->axes());
      if (total == totals.end())
        total = totals.insert(
            total, {collective->axes(), std::vector<uint64_t>(members)});
      std::vector<uint64_t> received = countReceived(*collective, members);
      for (uint32_t member = 0; member < members; ++member)
        total->byMember[member] += received[member] * phase->repeat();
    }
  return totals;
}

uint64_t Platform::receivedBytes(uint32_t device, size_t program) const {
  const artifact::Index &index = artifact_.index();
  Mesh mesh(index);
  uint64_t bytes = 0;
  for (const Received &received :
       received_[index.devices()->Get(device)->image()][program])
    bytes += received.byMember[mesh.part(device, received.axes)];
  return bytes;
}

} // namespace kiln::dry
