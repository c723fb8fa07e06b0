// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_ARENA_H
#define KILN_RUNTIME_DEVICE_CPU_ARENA_H

#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>

namespace kiln::cpu {

/// All the memory of one device, zero at first, in one block at fixed offsets.
/// Reserving it is the only allocation that a program's tensors ever make.
class Arena {
public:
  /// Reserves and commits exactly `bytes`; `noPlan` with the figures if the
  /// machine, its control group or a limit of the process has less.
  static Expected<Arena> reserve(uint64_t bytes);

  Arena(Arena &&other) noexcept;
  Arena &operator=(Arena &&other) noexcept;
  ~Arena();

  std::byte *base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

private:
  Arena(std::byte *base, uint64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte *base_ = nullptr;
  uint64_t bytes_ = 0;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_ARENA_H
