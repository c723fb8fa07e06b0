// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/Devices.h"
#include "runtime/device/cpu/Platform.h"
#include "runtime/device/dry/Platform.h"

namespace kiln {

std::span<const PlatformKind> platformKinds() {
  static constexpr PlatformKind kinds[] = {
      {"cpu", cpu::Platform::open},
      {"dry", dry::Platform::open},
  };
  return kinds;
}

Expected<std::unique_ptr<Platform>>
openPlatform(const PlatformOptions &options,
             std::span<const PlatformKind> kinds) {
  std::string names;
  for (const PlatformKind &kind : kinds) {
    if (kind.name == options.artifact.deviceKind())
      return kind.open(options);
    names += (names.empty() ? "'" : ", '") + std::string(kind.name) + "'";
  }
  return Status(Code::inputRejected,
                options.artifact.origin() + ": compiled for device '" +
                    std::string(options.artifact.deviceKind()) +
                    "', this kiln runs " + names);
}

} // namespace kiln
