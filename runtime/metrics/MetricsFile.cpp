// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/metrics/MetricsFile.h"
#include "runtime/metrics/LineWriter.h"
#include "runtime/metrics/TrainLog.h"

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>

namespace kiln {

namespace {

constexpr std::string_view opening = "{\"step\": ";

/// A number that may not be finite, which JSON has no form for.
void printNumber(LineWriter &line, const char *name, double value) {
  if (std::isfinite(value))
    line.print(", \"%s\": %.17g", name, value);
  else
    line.print(", \"%s\": null", name);
}

/// The step of a complete line; nothing for anything else.
std::optional<uint64_t> stepOf(std::string_view line) {
  if (!line.starts_with(opening) || !line.ends_with('}'))
    return std::nullopt;
  line.remove_prefix(opening.size());
  uint64_t step;
  auto [end, error] =
      std::from_chars(line.data(), line.data() + line.size(), step);
  return error == std::errc() ? std::optional(step) : std::nullopt;
}

/// Bytes of the lines up to a step.
uint64_t keptBytes(const std::string &path, uint64_t step) {
  std::ifstream file(path, std::ios::binary);
  uint64_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    std::optional<uint64_t> found = stepOf(line);
    if (!found || *found > step)
      break;
    bytes += line.size() + 1;
  }
  return bytes;
}

} // namespace

std::string_view formatStep(std::span<char> buffer, const StepRecord &record) {
  LineWriter line(buffer);
  line.print("%s%" PRIu64, opening.data(), record.step);
  printNumber(line, "loss", record.loss);
  line.print(", \"loss_hex\": \"%a\"", record.loss);
  printNumber(line, "samples_per_s", record.samplesPerSecond);
  if (record.learningRate)
    printNumber(line, "learning_rate", *record.learningRate);
  if (record.gradientNorm)
    printNumber(line, "grad_norm", *record.gradientNorm);
  line.print("}\n");
  return line.text();
}

std::string_view formatEvaluation(std::span<char> buffer,
                                  const EvaluationRecord &record) {
  LineWriter line(buffer);
  line.print("%s%" PRIu64, opening.data(), record.step);
  printNumber(line, "eval_loss", record.loss);
  line.print(", \"eval_loss_hex\": \"%a\"", record.loss);
  if (record.accuracy)
    printNumber(line, "eval_accuracy", *record.accuracy);
  line.print("}\n");
  return line.text();
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0)
    ::close(file_);
}

Status MetricsFile::open(const std::string &path, uint64_t step) {
  bytes_ = step == 0 ? 0 : keptBytes(path, step);
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0)
    return Status(Code::io, path + ": cannot open: " + std::strerror(errno));
  return Status();
}

bool MetricsFile::append(std::string_view line) {
  if (file_ < 0)
    return true;
  if (writeText(file_, line)) {
    bytes_ += line.size();
    return true;
  }
  // Half a line would spoil the file for its readers.
  (void)!::ftruncate(file_, static_cast<off_t>(bytes_));
  return std::exchange(hasFailed_, true);
}

} // namespace kiln
