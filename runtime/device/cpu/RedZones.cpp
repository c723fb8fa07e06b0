// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/RedZones.h"

#include <algorithm>

namespace kiln::cpu {

// Each zone's words hold its number: a command that copies past the end of both
// source and target changes the target's zone, too. Words are small floats,
// which arithmetic changes; a NaN would stay the same NaN.
static std::byte getFill(uint64_t zone, uint64_t offset) {
  uint32_t word = 0xA5A50000u | static_cast<uint16_t>(zone);
  return static_cast<std::byte>(word >> (offset % 4 * 8));
}

RedZones::RedZones(const artifact::Image &image, std::byte *arena)
    : zones_(*image.red_zones()), arena_(arena) {
  for (uint32_t number = 0; number < zones_.size(); ++number) {
    const artifact::RedZone &zone = *zones_.Get(number);
    for (uint64_t i = 0; i < zone.bytes(); ++i)
      arena_[zone.offset() + i] = getFill(number, i);
  }
}

std::string RedZones::findChange() const {
  for (uint32_t number = 0; number < zones_.size(); ++number) {
    const artifact::RedZone &zone = *zones_.Get(number);
    uint64_t begin = zone.bytes(), end = 0;
    for (uint64_t i = 0; i < zone.bytes(); ++i)
      if (arena_[zone.offset() + i] != getFill(number, i)) {
        begin = std::min(begin, i);
        end = i + 1;
      }
    if (end == 0)
      continue;
    return "bytes " + std::to_string(begin) + " to " + std::to_string(end - 1) +
           " behind the buffer that ends at offset " +
           std::to_string(zone.offset()) + ", " +
           std::to_string(zone.bytes() - end) +
           " before the one that begins at offset " +
           std::to_string(zone.offset() + zone.bytes());
  }
  return "";
}

} // namespace kiln::cpu
