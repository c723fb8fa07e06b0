// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_METRICS_METRICSFILE_H
#define KILN_RUNTIME_METRICS_METRICSFILE_H

#include "runtime/Status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

/// Results of one step.
struct StepRecord {
  uint64_t step;
  double loss;
  double samplesPerSecond;
  std::optional<double> learningRate = {}, gradientNorm = {};
  /// Of the step, and the steps so far whose gradients were not finite.
  std::optional<double> lossScale = {}, skippedSteps = {};
};

/// Results on the data held out.
struct EvaluationRecord {
  uint64_t step;
  double loss;
  std::optional<double> accuracy;
};

/// One JSON object and a newline. Numbers that JSON does not have are null, and
/// the hexadecimal form keeps every bit. Allocates nothing.
std::string_view formatStep(std::span<char> buffer, const StepRecord &record);
std::string_view formatEvaluation(std::span<char> buffer,
                                  const EvaluationRecord &record);

/// A file of one JSON object a line, each with a step, in the order of steps.
class MetricsFile {
public:
  MetricsFile() = default;
  MetricsFile(const MetricsFile &) = delete;
  ~MetricsFile();

  /// Copies the lines after `step` to another file, if there are any, and
  /// returns how many.
  static Expected<uint64_t> copyAfter(const std::string &path, uint64_t step,
                                      const std::string &copy);

  /// Opens the file and drops all lines after `step` and any left by an
  /// interrupted write: no step occurs twice.
  Status open(const std::string &path, uint64_t step);

  /// Drops a line that cannot be written. False the first time that happens.
  bool append(std::string_view line);

private:
  int file_ = -1;
  uint64_t bytes_ = 0; // Of complete lines.
  bool hasFailed_ = false;
};

} // namespace kiln

#endif // KILN_RUNTIME_METRICS_METRICSFILE_H
