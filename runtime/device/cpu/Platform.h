// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_PLATFORM_H
#define KILN_RUNTIME_DEVICE_CPU_PLATFORM_H

#include "runtime/collective/Groups.h"
#include "runtime/device/Platform.h"
#include "runtime/device/cpu/KernelLibrary.h"

#include <optional>

namespace kiln::cpu {

/// Virtual devices on the host's cores, any number in a process.
class Platform final : public kiln::Platform {
public:
  static Expected<std::unique_ptr<kiln::Platform>>
  open(const PlatformOptions &options);

  Expected<std::unique_ptr<kiln::Device>> start(uint32_t number) override;
  Status connect() override;

  const PlatformOptions &options() const { return options_; }
  const KernelLibrary &library() const { return library_; }
  /// After `connect`.
  const Groups &groups() const { return *groups_; }

private:
  Platform(const PlatformOptions &options, KernelLibrary library)
      : options_(options), library_(std::move(library)) {}

  const PlatformOptions options_;
  KernelLibrary library_;
  std::optional<Groups> groups_;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_PLATFORM_H
