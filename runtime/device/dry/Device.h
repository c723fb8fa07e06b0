// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DRY_DEVICE_H
#define KILN_RUNTIME_DEVICE_DRY_DEVICE_H

#include "runtime/device/dry/Platform.h"

#include <algorithm>

namespace kiln::dry {

/// A device without memory: its programs were checked by its platform.
class Device final : public kiln::Device {
public:
  Device(const Platform &platform, uint32_t number,
         const artifact::Image &image)
      : kiln::Device(number, image), platform_(platform) {}

  Status reserve() override {
    isReserved_ = true;
    return Status();
  }
  void begin(size_t program) override {
    received_ += platform_.receivedBytes(number(), program);
  }
  Status finish() override { return Status(); }
  Status read(uint64_t, std::span<std::byte> target) const override {
    std::fill(target.begin(), target.end(), std::byte{0});
    return Status();
  }
  Status write(uint64_t, std::span<const std::byte>) override {
    return Status();
  }
  Status clear(uint64_t, uint64_t) override { return Status(); }
  std::span<std::byte> staging(uint64_t, uint64_t) override { return {}; }
  std::span<const CommandProfile> profile(size_t) const override { return {}; }
  /// As planned, although no memory is reserved.
  uint64_t reservedBytes() const override {
    return isReserved_ ? image().arena_bytes() + image().host_bytes() : 0;
  }
  uint64_t receivedBytes() const override { return received_; }
  unsigned workers() const override { return 0; }
  bool keepsValues() const override { return false; }

private:
  const Platform &platform_;
  bool isReserved_ = false;
  uint64_t received_ = 0;
};

} // namespace kiln::dry

#endif // KILN_RUNTIME_DEVICE_DRY_DEVICE_H
