// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Platform.h"
#include "runtime/Mesh.h"
#include "runtime/device/cpu/Device.h"
#include "runtime/device/cpu/FaultGuard.h"
#include "runtime/device/cpu/HostFeatures.h"
#include "runtime/device/dry/CheckCollectives.h"

#include <thread>

namespace kiln::cpu {

static bool uses(const artifact::Target &target, std::string_view feature) {
  return target.features()->string_view().find(feature) !=
         std::string_view::npos;
}

/// Whether this processor has the instructions that the code was generated for.
static Status checkTarget(const Artifact &artifact,
                          const artifact::Target &target) {
  std::string missing =
      missingFeatures(target.features()->string_view(), hostFlags());
  if (missing.empty() && uses(target, "+amx-tile") && !requestTiles())
    missing = "permission to use AMX";
  if (missing.empty())
    return Status();
  return Status(Code::inputRejected, artifact.origin() + ": compiled for " +
                                         target.processor()->str() +
                                         ", this processor lacks " + missing +
                                         "; compile again on this machine");
}

Expected<std::unique_ptr<kiln::Platform>>
Platform::open(const PlatformOptions &options) {
  const Artifact &artifact = options.artifact;
  // Plans may have many more; each device here has threads of its own.
  constexpr uint32_t mostDevices = 1024;
  if (options.deviceCount > mostDevices)
    return Status(Code::usage,
                  artifact.origin() + ": has " +
                      std::to_string(options.deviceCount) +
                      " devices for each process, wanted at most " +
                      std::to_string(mostDevices));
  const artifact::Target *target = artifact.findTarget("cpu");
  if (!target || target->sections()->size() != 1)
    return Status(Code::inputRejected, artifact.origin() +
                                           ": has no code for the CPU; compile "
                                           "again with this kiln");
  if (Status status = checkTarget(artifact, *target); !status.ok())
    return status;
  Expected<KernelLibrary> library = KernelLibrary::load(
      artifact.section(target->sections()->Get(0)->string_view()));
  if (!library.ok())
    return Status(library.status().code(),
                  artifact.origin() + ": " + library.status().message());
  FaultGuard::install();
  return std::unique_ptr<kiln::Platform>(
      new Platform(options, std::move(*library)));
}

Expected<std::unique_ptr<kiln::Device>> Platform::start(uint32_t number) {
  uint32_t devices = Mesh(options_.artifact.index()).devices();
  Device::Options device;
  device.number = number;
  // Processes are assumed to share a machine: one that is alone loses little.
  device.isPassive = devices > 1 && devices * options_.workers >
                                        std::thread::hardware_concurrency();
  // The first runs on the caller's thread.
  device.hasThread = number != options_.firstDevice;
  return Device::start(*this, device);
}

Status Platform::connect() {
  // Devices with different collectives would wait for each other.
  const Artifact &artifact = options_.artifact;
  for (uint32_t i = 0; i < artifact.image().programs()->size(); ++i)
    if (Status status = dry::checkCollectives(artifact, i); !status.ok())
      return Status(Code::inputRejected, artifact.origin() + ": " +
                                             status.message() +
                                             "; compile again with this kiln");
  groups_.emplace(options_.artifact.index(), options_.firstDevice,
                  options_.deviceCount, options_.settings.world);
  return Status();
}

} // namespace kiln::cpu
