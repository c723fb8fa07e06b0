// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_METRICS_TRAINLOG_H
#define KILN_RUNTIME_METRICS_TRAINLOG_H

#include "runtime/Warn.h"
#include "runtime/metrics/MetricsFile.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace kiln {

/// "cpu:8": the kind of device and how many.
struct DeviceName {
  std::string_view kind;
  uint64_t count;
};

/// Fields of one line of the training log.
struct TrainRecord {
  DeviceName device;
  uint64_t step;
  double loss;
  double rate;       // Samples per second since the last line.
  double globalRate; // Samples per second since the start.
};

/// Writes the line, newline included, into the buffer and returns the used
/// prefix. Allocates nothing.
std::string_view formatTrainLine(std::span<char> buffer,
                                 const TrainRecord &record);

std::string_view formatEvaluationLine(std::span<char> buffer, DeviceName device,
                                      const EvaluationRecord &record);

/// At the end of an epoch, counted from 1; with the accuracy of an evaluation
/// that was made there.
std::string_view formatEpochLine(std::span<char> buffer, DeviceName device,
                                 uint64_t epoch, double seconds,
                                 std::optional<double> accuracy);

/// One line of a file of losses: step, loss with 17 digits, loss in
/// hexadecimal.
std::string_view formatLossLine(std::span<char> buffer, uint64_t step,
                                double loss);

/// Writes all of the text to a descriptor; after an error, which errno tells,
/// it drops the rest.
bool writeText(int file, std::string_view text);

/// The log of a run. Text that cannot be written is dropped, with one warning:
/// output never stops a training run.
class TrainLog {
public:
  /// A descriptor, or -1 for no log. `warn` must outlive it.
  TrainLog(int file, const Warn &warn) : file_(file), warn_(warn) {}

  void write(std::string_view text);

private:
  int file_;
  const Warn &warn_;
  bool hasFailed_ = false;
};

} // namespace kiln

#endif // KILN_RUNTIME_METRICS_TRAINLOG_H
