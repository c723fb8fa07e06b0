// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Feeder.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/random/Permutation.h"

#include <csignal>
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
                   uint64_t globalBatch) {
  if (!program.inputs())
    return Status();
  for (const artifact::Input *input : *program.inputs()) {
    Status status = isPosition(*input) ? checkPosition(*input)
                    : dataset          ? dataset->checkInput(*input)
                                       : Status();
    if (!status.ok())
      return status;
    if (input->samples() != globalBatch && (dataset || isPosition(*input)))
      return Status(Code::inputRejected, "input '" + input->name()->str() +
                                             "' has " +
                                             std::to_string(input->samples()) +
                                             " samples, the global batch " +
                                             std::to_string(globalBatch));
  }
  return Status();
}

void writePositions(const artifact::Program &program, std::byte *arena) {
  if (!program.inputs())
    return;
  for (const artifact::Input *input : *program.inputs()) {
    if (!isPosition(*input))
      continue;
    for (uint64_t offset : {input->offset(), input->staging_offset()}) {
      auto *places = reinterpret_cast<int32_t *>(arena + offset);
      for (uint64_t i = 0; i < input->samples(); ++i)
        places[i] = static_cast<int32_t>(i);
    }
  }
}

void writeHeldOut(const artifact::Program &program, const Dataset &dataset,
                  uint64_t first, std::byte *arena) {
  writePositions(program, arena);
  if (!program.inputs())
    return;
  for (const artifact::Input *input : *program.inputs()) {
    if (isPosition(*input))
      continue;
    std::byte *place = arena + input->offset();
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
               const artifact::Program &program, std::byte *arena,
               uint64_t firstStep)
    : dataset_(dataset), order_(order), step_(firstStep) {
  writePositions(program, arena);
  if (program.inputs())
    for (const artifact::Input *input : *program.inputs())
      if (!isPosition(*input))
        slots_.push_back({input, arena + input->offset(),
                          arena + input->staging_offset(),
                          sampleBytes(*input)});
  // The thread inherits this mask: signals are for the thread that runs steps.
  sigset_t all, saved;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &saved);
  thread_ = std::thread([this] { prepare(); });
  ::pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

Feeder::~Feeder() {
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
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
  for (uint64_t i = 0; i < slot.input->samples(); ++i)
    dataset_.write(*slot.input, order_.at(step, i),
                   place + i * slot.sampleBytes);
}

} // namespace kiln
