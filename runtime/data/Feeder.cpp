// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Feeder.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/random/Permutation.h"

#include <algorithm>

namespace kiln {

SampleId SampleOrder::at(uint64_t step, uint64_t position) const {
  uint64_t global = step * globalBatch + position;
  uint64_t epoch = global / samples, index = global % samples;
  return {epoch, isShuffled ? permute(seed, epoch, index, samples) : index};
}

static bool isPosition(const artifact::Input &input) {
  return input.name()->string_view() == positionInput;
}

static uint64_t sampleBytes(const artifact::Input &input) {
  return sampleElements(input) * elementBytes(input.element_type());
}

static Status checkPosition(const artifact::Input &input) {
  if (input.element_type() == artifact::ElementType::i32 &&
      sampleElements(input) == 1)
    return Status();
  return Status(Code::inputRejected,
                "input '" + input.name()->str() + "' has " +
                    std::to_string(sampleElements(input)) +
                    " elements of type " +
                    artifact::EnumNameElementType(input.element_type()) +
                    " per sample, wanted one i32: a place in the batch");
}

Status checkInputs(const artifact::Program &program, const Dataset *dataset,
                   uint64_t samples) {
  if (!program.inputs())
    return Status();
  for (const artifact::Input *input : *program.inputs()) {
    Status status = isPosition(*input) ? checkPosition(*input)
                    : dataset          ? dataset->checkInput(*input)
                                       : Status();
    if (!status.ok())
      return status;
    if (input->samples() != samples && (dataset || isPosition(*input)))
      return Status(Code::inputRejected,
                    "input '" + input->name()->str() + "' has " +
                        std::to_string(input->samples()) +
                        " samples, its share of the batch " +
                        std::to_string(samples));
  }
  return Status();
}

static Status writePositions(const FedDevice &device, uint64_t offset,
                             const artifact::Input &input) {
  std::span<std::byte> staging = device.device->staging(offset, input.bytes());
  auto *positions = reinterpret_cast<int32_t *>(staging.data());
  for (uint64_t i = 0; i < input.samples(); ++i)
    positions[i] = static_cast<int32_t>(device.firstSample + i);
  return device.device->write(offset, staging);
}

Status writePositions(const FedDevice &device) {
  if (!device.program->inputs() || !device.device->keepsValues())
    return Status();
  for (const artifact::Input *input : *device.program->inputs())
    if (isPosition(*input))
      for (uint64_t offset : {input->offset(), input->staging_offset()})
        if (Status status = writePositions(device, offset, *input);
            !status.ok())
          return status;
  return Status();
}

Status writeHeldOut(const FedDevice &device, const Dataset &dataset,
                    uint64_t first) {
  Status status = writePositions(device);
  if (!device.program->inputs() || !device.device->keepsValues())
    return status;
  first += device.firstSample;
  for (const artifact::Input *input : *device.program->inputs()) {
    if (isPosition(*input) || !status.ok())
      continue;
    std::span<std::byte> staging =
        device.device->staging(input->offset(), input->bytes());
    std::byte *place = staging.data();
    for (uint64_t i = 0; i < input->samples(); ++i) {
      if (first + i >= dataset.samples())
        Dataset::writePadding(*input, place);
      else if (status = dataset.write(*input, {0, first + i}, place);
               !status.ok())
        return status;
      place += sampleBytes(*input);
    }
    status = device.device->write(input->offset(), staging);
  }
  return status.ok() ? dataset.checkFiles() : status;
}

Expected<std::unique_ptr<Feeder>>
Feeder::start(const Dataset &dataset, SampleOrder order,
              std::span<const FedDevice> devices, uint64_t firstStep) {
  std::unique_ptr<Feeder> feeder(new Feeder(dataset, order, firstStep));
  if (Status status = feeder->addSlots(devices); !status.ok())
    return status;
  Expected<Thread> thread = Thread::start(
      "kiln-data", [feeder = feeder.get()] { feeder->prepare(); });
  if (!thread.ok())
    return thread.status();
  feeder->thread_.emplace(std::move(*thread));
  return feeder;
}

Status Feeder::addSlots(std::span<const FedDevice> devices) {
  size_t count = 0;
  for (const FedDevice &device : devices)
    count += device.program->inputs() ? device.program->inputs()->size() : 0;
  slots_.reserve(count); // Slots keep their twin's address.
  for (const FedDevice &device : devices)
    if (Status status = addSlots(device); !status.ok())
      return status;
  return Status();
}

Status Feeder::addSlots(const FedDevice &device) {
  Status status = writePositions(device);
  if (!device.program->inputs() || !device.device->keepsValues())
    return status;
  size_t earlier = slots_.size();
  for (const artifact::Input *input : *device.program->inputs()) {
    if (isPosition(*input))
      continue;
    const Slot *twin = nullptr;
    for (size_t i = 0; i < earlier && !twin; ++i)
      if (slots_[i].input == input &&
          slots_[i].firstSample == device.firstSample)
        twin = &slots_[i];
    std::byte *staging =
        device.device->staging(input->staging_offset(), input->bytes()).data();
    slots_.push_back({input, device.device, staging, sampleBytes(*input),
                      device.firstSample, twin});
  }
  return status;
}

Feeder::~Feeder() {
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  changed_.notify_all();
  thread_.reset();
}

/// Whether an input has a second buffer, filled while the program runs.
static bool isStaged(const artifact::Input &input) {
  return input.staging_offset() != input.offset();
}

Status Feeder::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return isReady_; });
  Status status = prepared_;
  for (const Slot &slot : slots_) {
    if (status.ok() && !isStaged(*slot.input))
      status = fill(slot, step_);
    if (status.ok())
      status = slot.device->write(slot.input->offset(),
                                  {slot.staging, slot.input->bytes()});
  }
  if (status.ok())
    status = dataset_.checkFiles();
  if (!status.ok())
    return status;
  isReady_ = false;
  ++step_;
  changed_.notify_all();
  return status;
}

void Feeder::prepare() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return isStopping_ || !isReady_; });
    if (isStopping_)
      return;
    uint64_t step = step_;
    lock.unlock();
    Status status;
    for (const Slot &slot : slots_)
      if (status.ok() && isStaged(*slot.input))
        status = fill(slot, step);
    lock.lock();
    prepared_ = std::move(status);
    isReady_ = true;
    changed_.notify_all();
  }
}

Status Feeder::fill(const Slot &slot, uint64_t step) const {
  // Devices of one replica are fed the same samples.
  if (slot.twin) {
    std::copy_n(slot.twin->staging, slot.input->bytes(), slot.staging);
    return Status();
  }
  Status status;
  for (uint64_t i = 0; i < slot.input->samples() && status.ok(); ++i)
    status = dataset_.write(*slot.input, order_.at(step, slot.firstSample + i),
                            slot.staging + i * slot.sampleBytes);
  return status;
}

} // namespace kiln
