// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_DEVICE_H
#define KILN_RUNTIME_DEVICE_CPU_DEVICE_H

#include "runtime/device/Device.h"
#include "runtime/device/cpu/Arena.h"
#include "runtime/device/cpu/Executor.h"
#include "runtime/device/cpu/Platform.h"

#include <memory>

namespace kiln::cpu {

/// A virtual device: workers, an arena in host memory, programs and a thread
/// for collectives.
class Device final : public kiln::Device {
public:
  struct Options {
    uint32_t number;
    bool isPassive; // Other devices need the cores while it waits.
    bool hasThread; // `begin` returns at once.
  };

  /// `failed` if the system refuses a thread. The platform must outlive it.
  static Expected<std::unique_ptr<kiln::Device>> start(const Platform &platform,
                                                       const Options &options);
  ~Device() override;

  Status reserve() override;
  void begin(size_t program) override;
  Status finish() override;
  Status read(uint64_t offset, std::span<std::byte> target) const override;
  Status write(uint64_t offset, std::span<const std::byte> source) override;
  Status clear(uint64_t offset, uint64_t bytes) override;
  std::span<std::byte> staging(uint64_t offset, uint64_t bytes) override;
  std::span<const CommandProfile> profile(size_t program) const override;
  uint64_t reservedBytes() const override {
    return arena_ ? arena_->bytes() : 0;
  }
  uint64_t receivedBytes() const override {
    return communicator_->receivedBytes();
  }
  unsigned workers() const override { return team_->workers(); }

private:
  Device(const Platform &platform, const artifact::Image &image,
         uint32_t number, std::unique_ptr<Team> team);
  void serve();
  Status writeCoordinates();
  Track *addTrack(Track::Queue queue) const;

  const Platform &platform_;
  std::unique_ptr<Team> team_;
  std::optional<Arena> arena_;
  std::unique_ptr<RedZones> redZones_; // Null for none.
  std::unique_ptr<Communicator> communicator_;
  std::vector<Executor> executors_; // In the order of the image's programs.

  size_t program_ = 0;
  bool isStopping_ = false;
  Gate begun_, done_;
  std::optional<Thread> thread_;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_DEVICE_H
