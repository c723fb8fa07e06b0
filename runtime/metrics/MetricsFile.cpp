// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/metrics/MetricsFile.h"
#include "runtime/checkpoint/OutputFile.h"
#include "runtime/metrics/LineWriter.h"
#include "runtime/metrics/TrainLog.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <utility>

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

/// To read a FIFO would block.
Status checkRegular(const std::string &path) {
  std::error_code error;
  std::filesystem::file_type type = std::filesystem::status(path, error).type();
  return type == std::filesystem::file_type::regular ||
                 type == std::filesystem::file_type::not_found
             ? Status()
             : Status(Code::io, path + ": is no regular file");
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
  for (auto [name, value] : {std::pair("learning_rate", record.learningRate),
                             std::pair("grad_norm", record.gradientNorm),
                             std::pair("loss_scale", record.lossScale),
                             std::pair("skipped_steps", record.skippedSteps)})
    if (value)
      printNumber(line, name, *value);
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

Expected<uint64_t> MetricsFile::copyAfter(const std::string &path,
                                          uint64_t step,
                                          const std::string &copy) {
  if (Status status = checkRegular(path); !status.ok())
    return status;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(keptBytes(path, step)));
  std::string lines{std::istreambuf_iterator<char>(file), {}};
  lines.resize(lines.rfind('\n') + 1); // The last may be half a line.
  if (lines.empty())
    return uint64_t{0};
  Status status = replaceFile(copy, [&](OutputFile &target) {
    return target.write(std::as_bytes(std::span(lines)));
  });
  if (!status.ok())
    return status;
  return static_cast<uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
}

Status MetricsFile::open(const std::string &path, uint64_t step) {
  if (Status status = checkRegular(path); !status.ok())
    return status;
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
