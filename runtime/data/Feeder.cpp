// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Feeder.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/random/Permutation.h"

#include <csignal>
#include <cstring>

namespace kiln {

uint64_t SampleOrder::at(uint64_t step, uint64_t position) const {
  uint64_t global = step * globalBatch + position;
  uint64_t epoch = global / samples, index = global % samples;
  return isShuffled ? permute(seed, epoch, index, samples) : index;
}

Feeder::Feeder(const Dataset &dataset, SampleOrder order,
               const artifact::Program &program, std::byte *arena,
               uint64_t firstStep)
    : dataset_(dataset), order_(order), step_(firstStep) {
  if (program.inputs())
    for (const artifact::Input *input : *program.inputs())
      slots_.push_back(
          {input, arena + input->offset(), arena + input->staging_offset(),
           sampleElements(*input) * elementBytes(input->element_type())});
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
