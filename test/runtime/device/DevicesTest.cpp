// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/Devices.h"
#include "test/runtime/SampleArtifact.h"
#include "test/runtime/device/SampleDevice.h"

#include <gtest/gtest.h>

namespace kiln::test {

using namespace artifact;

TEST(Devices, RefusesAKindThatIsNotInTheList) {
  IndexT index = emptyIndex(4096);
  index.device = "abacus";
  Status status = Session::fromArtifact(std::move(*loadIndex(index))).status();
  EXPECT_EQ(status.code(), Code::inputRejected);
  EXPECT_EQ(status.message().find(
                "sample: compiled for device 'abacus', this kiln runs 'cpu'"),
            0u)
      << status.message();
}

TEST(Devices, RefusesAProcessorThatLacksInstructions) {
  IndexT index = emptyIndex(4096);
  index.targets[0]->processor = "diamondrapids";
  index.targets[0]->features = "+sse2,+amx-fp16,-xop";
  Status status = Session::fromArtifact(std::move(*loadIndex(index))).status();
  if (!status.ok()) // The machine of the test may be one.
    EXPECT_EQ(status.message(),
              "sample: compiled for diamondrapids, this processor lacks "
              "amx-fp16; compile again on this machine");
}

namespace {

/// A CPU device behind a bus: the host sees its memory only by reads and
/// writes. It fails when it is told to.
class RemoteDevice final : public kiln::Device {
public:
  explicit RemoteDevice(std::unique_ptr<kiln::Device> device)
      : kiln::Device(device->number(), device->image()),
        device_(std::move(device)) {}

  static inline size_t failingRun = 0; // Counted from 1; 0 for none.

  Status reserve() override { return device_->reserve(); }
  void begin(size_t program) override {
    ++runs_;
    device_->begin(program);
  }
  Status finish() override {
    Status status = device_->finish();
    return runs_ == failingRun ? Status(Code::failed, "the bus is broken")
                               : status;
  }
  Status read(uint64_t offset, std::span<std::byte> target) const override {
    return device_->read(offset, target);
  }
  Status write(uint64_t offset, std::span<const std::byte> source) override {
    return device_->write(offset, source);
  }
  Status clear(uint64_t offset, uint64_t bytes) override {
    return device_->clear(offset, bytes);
  }
  std::span<std::byte> staging(uint64_t offset, uint64_t bytes) override {
    return buffers_.find(offset, bytes);
  }
  std::span<const CommandProfile> profile(size_t program) const override {
    return device_->profile(program);
  }
  uint64_t reservedBytes() const override { return device_->reservedBytes(); }
  uint64_t receivedBytes() const override { return device_->receivedBytes(); }
  unsigned workers() const override { return device_->workers(); }

private:
  std::unique_ptr<kiln::Device> device_;
  StagingBuffers buffers_;
  size_t runs_ = 0;
};

class RemotePlatform final : public Platform {
public:
  static Expected<std::unique_ptr<Platform>>
  open(const PlatformOptions &options) {
    Expected<std::unique_ptr<Platform>> cpu =
        platformKinds().front().open(options);
    if (!cpu.ok())
      return cpu.status();
    auto platform = std::make_unique<RemotePlatform>();
    platform->cpu_ = std::move(*cpu);
    return std::unique_ptr<Platform>(std::move(platform));
  }

  Expected<std::unique_ptr<kiln::Device>> start(uint32_t number) override {
    Expected<std::unique_ptr<kiln::Device>> device = cpu_->start(number);
    if (!device.ok())
      return device.status();
    return std::unique_ptr<kiln::Device>(
        std::make_unique<RemoteDevice>(std::move(*device)));
  }
  Status connect() override { return cpu_->connect(); }

private:
  std::unique_ptr<Platform> cpu_;
};

constexpr PlatformKind remoteKinds[] = {{"cpu", RemotePlatform::open}};

struct Trained {
  Status status;
  std::string losses;
  std::vector<float> table;
};

Trained train(uint32_t devices, std::span<const PlatformKind> kinds) {
  TemporaryFile text(sampleText(1000)), losses;
  IndexT index = shardedTraining(text.path(), devices);
  index.settings->training->steps = 6;
  SessionOptions options;
  options.kinds = kinds;
  Session session =
      openSession(index, compileKernels(sampleKernels()), options);
  TrainOptions train;
  train.logFile = -1;
  train.lossesPath = losses.path();
  train.isInitialising = true;
  Trained trained{session.train(train), losses.read(), std::vector<float>(15)};
  EXPECT_TRUE(session
                  .readVariable(
                      "table", std::as_writable_bytes(std::span(trained.table)))
                  .ok());
  return trained;
}

} // namespace

// Nothing but reads and writes reaches a device's memory: initial values,
// samples, outputs and variables are the same if the host cannot see it.
TEST(Devices, AnotherKindIsOneLineInTheList) {
  for (uint32_t devices : {1u, 3u}) {
    Trained wanted = train(devices, platformKinds()),
            found = train(devices, remoteKinds);
    EXPECT_TRUE(found.status.ok()) << found.status.message();
    EXPECT_EQ(std::count(found.losses.begin(), found.losses.end(), '\n'), 6);
    EXPECT_EQ(found.losses, wanted.losses);
    EXPECT_EQ(found.table, wanted.table);
  }
}

TEST(Devices, AFailedRunEndsTraining) {
  RemoteDevice::failingRun = 3;
  Trained found = train(2, remoteKinds);
  RemoteDevice::failingRun = 0;
  EXPECT_EQ(found.status.code(), Code::failed);
  EXPECT_EQ(found.status.message(), "the bus is broken");
  EXPECT_EQ(std::count(found.losses.begin(), found.losses.end(), '\n'), 2);
}

} // namespace kiln::test
