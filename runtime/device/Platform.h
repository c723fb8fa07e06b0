// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_PLATFORM_H
#define KILN_RUNTIME_DEVICE_PLATFORM_H

#include "runtime/collective/Group.h"
#include "runtime/device/Device.h"
#include "runtime/thread/Team.h"
#include "runtime/trace/Trace.h"

#include <memory>

namespace kiln {

/// Arguments of opening a platform. All of them outlive it.
struct PlatformOptions {
  const Artifact &artifact;
  CollectiveSettings settings; // `settings.world` is null for one process.
  /// Devices of the mesh that are in this process: [first, first + count).
  uint32_t firstDevice, deviceCount;
  unsigned workers; // Of a device that computes on the host.
  bool isProfiled;
  Trace *trace; // Null for none.
  /// The host's own workers. Kernels on host memory run here, for all devices
  /// of the process in turn.
  Team &host;
};

/// One kind of device in this process: code and groups shared by its devices.
///
/// Order: opened once (see PlatformKind), then `start` for each device of this
/// process in ascending order, then `connect`, then the devices are reserved.
/// Lifetime: it outlives its devices. Failure: a platform that has failed is
/// only destroyed.
class Platform {
public:
  virtual ~Platform() = default;
  Platform() = default;
  Platform(const Platform &) = delete;
  Platform &operator=(const Platform &) = delete;

  /// A device of this process by its number in the mesh; `failed` if the
  /// system refuses a thread or the hardware has no such device.
  virtual Expected<std::unique_ptr<Device>> start(uint32_t number) = 0;

  /// Connects the groups of all collectives with their members in other
  /// processes. Collective over the processes of the run.
  virtual Status connect() = 0;
};

/// An entry in the list of kinds.
struct PlatformKind {
  std::string_view name; // As in `devices.kind` and in the artifact.
  /// Checks that the machine meets the code's requirements and loads the code.
  /// `inputRejected` if it cannot run here.
  Expected<std::unique_ptr<Platform>> (*open)(const PlatformOptions &options);
};

} // namespace kiln

#endif // KILN_RUNTIME_DEVICE_PLATFORM_H
