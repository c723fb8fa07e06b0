// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_FEEDER_H
#define KILN_RUNTIME_DATA_FEEDER_H

#include "runtime/data/Dataset.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace kiln {

/// Which samples make the batch of a step. Batches run on over the end of an
/// epoch, so sample j of step s is a pure function of (seed, s, j).
struct SampleOrder {
  uint64_t samples;
  uint64_t globalBatch;
  uint64_t seed;
  bool isShuffled;

  SampleId at(uint64_t step, uint64_t position) const;
};

/// Whether a program's inputs can be fed, batch by batch, from a dataset. With
/// none only the samples' positions are fed, and the rest stays as it is.
Status checkInputs(const artifact::Program &program, const Dataset *dataset,
                   uint64_t globalBatch);

/// Writes the inputs that are the same in every step: the samples' positions.
void writePositions(const artifact::Program &program, std::byte *arena);

/// Writes the samples from `first` on, in file order, as a program's inputs;
/// places past the last sample are padded. For data held out, which is read
/// once and always alike. Allocates nothing.
void writeHeldOut(const artifact::Program &program, const Dataset &dataset,
                  uint64_t first, std::byte *arena);

/// Fills the inputs of a program. A thread prepares the batch of the next step
/// in the staging places while the program runs. Dataset, program and arena
/// must outlive it.
class Feeder {
public:
  /// `firstStep` is counted from 0.
  Feeder(const Dataset &dataset, SampleOrder order,
         const artifact::Program &program, std::byte *arena,
         uint64_t firstStep);
  ~Feeder();
  Feeder(const Feeder &) = delete;

  /// Puts the next step's batch into the input places, and starts on the one
  /// after. The program must not be running.
  void next();

private:
  struct Slot {
    const artifact::Input *input;
    std::byte *target;
    std::byte *staging; // Equal to target if there is no second place.
    uint64_t sampleBytes;
  };

  void prepare();
  void fill(const Slot &slot, std::byte *place, uint64_t step) const;

  const Dataset &dataset_;
  SampleOrder order_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t step_;        // The batch in staging, or being prepared there.
  bool isReady_ = false; // Staging holds the whole batch.
  bool isStopping_ = false;
  std::thread thread_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_FEEDER_H
