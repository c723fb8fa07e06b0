// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DRY_PLATFORM_H
#define KILN_RUNTIME_DEVICE_DRY_PLATFORM_H

#include "runtime/Mesh.h"
#include "runtime/device/Platform.h"

#include <vector>

namespace kiln::dry {

/// Devices that check every command and compute nothing: no code is loaded, no
/// memory reserved, no value computed, and reads give zeros. So a plan far
/// larger than the machine can be run. Loading the artifact has checked each
/// command by itself: places inside the arena in every repetition, bytes,
/// tickets. `connect` checks commands against each other, on a device and
/// between devices, by image: its cost does not grow with devices of the same
/// image.
class Platform final : public kiln::Platform {
public:
  static Expected<std::unique_ptr<kiln::Platform>>
  open(const PlatformOptions &options);

  Expected<std::unique_ptr<kiln::Device>> start(uint32_t number) override;
  /// `internal` with the command of the first violation in any program.
  Status connect() override;

  /// Bytes that a device receives in one run of a program. After `connect`.
  uint64_t receivedBytes(uint32_t device, size_t program) const;

private:
  /// Bytes received in one run by the members of groups over the same axes.
  struct Received {
    const Axes *axes;
    std::vector<uint64_t> byMember;
  };

  explicit Platform(const Artifact &artifact) : artifact_(artifact) {}
  std::vector<Received> countBytes(const artifact::Program &program) const;

  const Artifact &artifact_;
  /// By image, then by program.
  std::vector<std::vector<std::vector<Received>>> received_;
};

} // namespace kiln::dry

#endif // KILN_RUNTIME_DEVICE_DRY_PLATFORM_H
