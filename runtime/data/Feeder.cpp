// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Feeder.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/random/Permutation.h"

#include <cstring>

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

void writePositions(const FedDevice &device) {
  if (!device.program->inputs())
    return;
  for (const artifact::Input *input : *device.program->inputs()) {
    if (!isPosition(*input))
      continue;
    for (uint64_t offset : {input->offset(), input->staging_offset()}) {
      auto *places = reinterpret_cast<int32_t *>(device.arena + offset);
      for (uint64_t i = 0; i < input->samples(); ++i)
        places[i] = static_cast<int32_t>(device.firstSample + i);
    }
  }
}

void writeHeldOut(const FedDevice &device, const Dataset &dataset,
                  uint64_t first) {
  writePositions(device);
  if (!device.program->inputs())
    return;
  first += device.firstSample;
  for (const artifact::Input *input : *device.program->inputs()) {
    if (isPosition(*input))
      continue;
    std::byte *place = device.arena + input->offset();
    for (uint64_t i = 0; i < input->samples(); ++i) {
      if (first + i < dataset.samples())
        dataset.write(*input, {0, first + i}, place);
      else
        Dataset::writePadding(*input, place);
      place += sampleBytes(*input);
    }
  }
}

Feeder::Feeder(const Dataset &dataset, SampleOrder order,
               std::span<const FedDevice> devices, uint64_t firstStep)
    : dataset_(dataset), order_(order), step_(firstStep) {
  size_t count = 0;
  for (const FedDevice &device : devices)
    count += device.program->inputs() ? device.program->inputs()->size() : 0;
  slots_.reserve(count); // Slots keep their twin's address.
  for (const FedDevice &device : devices)
    addSlots(device);
}

Expected<std::unique_ptr<Feeder>>
Feeder::start(const Dataset &dataset, SampleOrder order,
              std::span<const FedDevice> devices, uint64_t firstStep) {
  std::unique_ptr<Feeder> feeder(
      new Feeder(dataset, order, devices, firstStep));
  Expected<Thread> thread = Thread::start(
      "kiln-data", [feeder = feeder.get()] { feeder->prepare(); });
  if (!thread.ok())
    return thread.status();
  feeder->thread_.emplace(std::move(*thread));
  return feeder;
}

void Feeder::addSlots(const FedDevice &device) {
  writePositions(device);
  if (!device.program->inputs())
    return;
  size_t earlier = slots_.size();
  for (const artifact::Input *input : *device.program->inputs()) {
    if (isPosition(*input))
      continue;
    const Slot *twin = nullptr;
    for (size_t i = 0; i < earlier && !twin; ++i)
      if (slots_[i].input == input &&
          slots_[i].firstSample == device.firstSample)
        twin = &slots_[i];
    slots_.push_back({input, device.arena + input->offset(),
                      device.arena + input->staging_offset(),
                      sampleBytes(*input), device.firstSample, twin});
  }
}

Feeder::~Feeder() {
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  changed_.notify_all();
  thread_.reset();
}

void Feeder::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return isReady_; });
  for (const Slot &slot : slots_) {
    if (slot.staging == slot.target)
      fill(slot, slot.target, step_);
    else
      std::memcpy(slot.target, slot.staging, slot.input->bytes());
  }
  isReady_ = false;
  ++step_;
  changed_.notify_all();
}

void Feeder::prepare() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return isStopping_ || !isReady_; });
    if (isStopping_)
      return;
    uint64_t step = step_;
    lock.unlock();
    for (const Slot &slot : slots_)
      if (slot.staging != slot.target)
        fill(slot, slot.staging, step);
    lock.lock();
    isReady_ = true;
    changed_.notify_all();
  }
}

void Feeder::fill(const Slot &slot, std::byte *place, uint64_t step) const {
  // Devices of one replica differ in nothing that they are fed.
  if (slot.twin) {
    std::memcpy(place,
                place == slot.staging ? slot.twin->staging : slot.twin->target,
                slot.input->bytes());
    return;
  }
  for (uint64_t i = 0; i < slot.input->samples(); ++i)
    dataset_.write(*slot.input, order_.at(step, slot.firstSample + i),
                   place + i * slot.sampleBytes);
}

} // namespace kiln
