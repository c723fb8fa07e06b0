// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_RUNTIME_DEVICE_SAMPLEDEVICE_H
#define KILN_TEST_RUNTIME_DEVICE_SAMPLEDEVICE_H

#include "runtime/device/Platform.h"

#include <cstring>
#include <map>
#include <vector>

namespace kiln::test {

/// Host buffers for ranges of a device whose memory the host cannot see, full
/// of rubbish at first.
class StagingBuffers {
public:
  std::span<std::byte> find(uint64_t offset, uint64_t bytes) {
    auto &buffer = buffers_[{offset, bytes}];
    if (buffer.size() != bytes)
      buffer.assign(bytes, std::byte{0xa5});
    return buffer;
  }

private:
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::byte>> buffers_;
};

/// Memory alone, for tests of code that writes to it.
class SampleDevice final : public kiln::Device {
public:
  explicit SampleDevice(std::span<std::byte> memory)
      : kiln::Device(0, *flatbuffers::GetRoot<artifact::Image>(noImage)),
        memory_(memory) {}

  Status reserve() override { return Status(); }
  void begin(size_t) override {}
  Status finish() override { return Status(); }
  Status read(uint64_t offset, std::span<std::byte> target) const override {
    std::memcpy(target.data(), memory_.data() + offset, target.size());
    return Status();
  }
  Status write(uint64_t offset, std::span<const std::byte> source) override {
    std::memcpy(memory_.data() + offset, source.data(), source.size());
    return Status();
  }
  Status clear(uint64_t offset, uint64_t bytes) override {
    std::memset(memory_.data() + offset, 0, bytes);
    return Status();
  }
  std::span<std::byte> staging(uint64_t offset, uint64_t bytes) override {
    return buffers_.find(offset, bytes);
  }
  std::span<const CommandProfile> profile(size_t) const override { return {}; }
  uint64_t reservedBytes() const override { return memory_.size(); }
  uint64_t receivedBytes() const override { return 0; }
  unsigned workers() const override { return 1; }

private:
  alignas(8) static constexpr std::byte noImage[8] = {};

  std::span<std::byte> memory_;
  StagingBuffers buffers_;
};

} // namespace kiln::test

#endif // KILN_TEST_RUNTIME_DEVICE_SAMPLEDEVICE_H
