// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DEVICES_H
#define KILN_RUNTIME_DEVICE_DEVICES_H

#include "runtime/device/Platform.h"

namespace kiln {

/// All kinds of device that this kiln runs.
std::span<const PlatformKind> platformKinds();

/// Opens the platform of the artifact's kind of device; `inputRejected` if it
/// is not among `kinds`.
Expected<std::unique_ptr<Platform>>
openPlatform(const PlatformOptions &options,
             std::span<const PlatformKind> kinds);

} // namespace kiln

#endif // KILN_RUNTIME_DEVICE_DEVICES_H
