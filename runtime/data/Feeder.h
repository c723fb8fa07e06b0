// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_FEEDER_H
#define KILN_RUNTIME_DATA_FEEDER_H

#include "runtime/data/Dataset.h"
#include "runtime/device/Device.h"
#include "runtime/thread/Thread.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace kiln {

/// The samples of each step's batch. Batches run on over the end of an epoch,
/// so sample j of step s is a pure function of (seed, s, j).
struct SampleOrder {
  uint64_t samples;
  uint64_t globalBatch;
  uint64_t seed;
  bool isShuffled;

  SampleId at(uint64_t step, uint64_t position) const;
};

/// A device with its share of the batch: samples [firstSample, firstSample +
/// samples).
struct FedDevice {
  const artifact::Program *program;
  Device *device;
  uint64_t firstSample, samples;
};

/// Whether a program's inputs can be fed, `samples` at a time, from a dataset.
/// Without one only the samples' positions are fed, and the rest is unchanged.
Status checkInputs(const artifact::Program &program, const Dataset *dataset,
                   uint64_t samples);

/// Writes the inputs that are the same in every step: the samples' positions in
/// the global batch.
Status writePositions(const FedDevice &device);

/// Writes a device's share of the batch that begins with sample `first`, in
/// file order; slots past the last sample are padded. For data held out, which
/// is read once and always in the same order. Allocates nothing.
Status writeHeldOut(const FedDevice &device, const Dataset &dataset,
                    uint64_t first);

/// Fills the inputs of a program on all devices. A thread prepares the batch of
/// the next step in the devices' staging while the program runs. Dataset,
/// programs and devices must outlive it.
class Feeder {
public:
  /// `firstStep` is counted from 0. `failed` if there can be no thread.
  static Expected<std::unique_ptr<Feeder>>
  start(const Dataset &dataset, SampleOrder order,
        std::span<const FedDevice> devices, uint64_t firstStep);
  ~Feeder();
  Feeder(const Feeder &) = delete;

  /// Writes the next step's batch to the inputs, and starts on the one after.
  /// The program must not be running. After a failure there is no next batch.
  Status next();

private:
  struct Slot {
    const artifact::Input *input;
    Device *device;
    std::byte *staging; // On the host.
    uint64_t sampleBytes, firstSample;
    const Slot *twin; // An earlier one with the same samples, or null.
  };

  Feeder(const Dataset &dataset, SampleOrder order, uint64_t firstStep)
      : dataset_(dataset), order_(order), step_(firstStep) {}
  Status addSlots(std::span<const FedDevice> devices);
  Status addSlots(const FedDevice &device);

  void prepare();
  Status fill(const Slot &slot, uint64_t step) const;

  const Dataset &dataset_;
  SampleOrder order_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t step_;        // Of the batch in staging, or being prepared there.
  bool isReady_ = false; // Staging holds the complete batch.
  Status prepared_;      // Why it does not.
  bool isStopping_ = false;
  std::optional<Thread> thread_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_FEEDER_H
