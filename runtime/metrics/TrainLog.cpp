// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/metrics/TrainLog.h"
#include "runtime/metrics/LineWriter.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <unistd.h>

namespace kiln {

static void printDevice(LineWriter &line, const char *subject,
                        DeviceName device) {
  line.print("| %s Device=%.*s:%" PRIu64, subject,
             static_cast<int>(device.kind.size()), device.kind.data(),
             device.count);
}

std::string_view formatTrainLine(std::span<char> buffer,
                                 const TrainRecord &record) {
  LineWriter line(buffer);
  printDevice(line, "Train", record.device);
  line.print(", Step=%" PRIu64 ", Loss=%.6g, Rate=%.2f samples/sec, "
             "GlobalRate=%.2f samples/sec\n",
             record.step, record.loss, record.rate, record.globalRate);
  return line.text();
}

std::string_view formatEvaluationLine(std::span<char> buffer, DeviceName device,
                                      const EvaluationRecord &record) {
  LineWriter line(buffer);
  printDevice(line, "Eval", device);
  line.print(", Step=%" PRIu64 ", Loss=%.6g", record.step, record.loss);
  if (record.accuracy)
    line.print(", Accuracy=%.6g", *record.accuracy);
  line.print("\n");
  return line.text();
}

std::string_view formatEpochLine(std::span<char> buffer, DeviceName device,
                                 uint64_t epoch, double seconds,
                                 std::optional<double> accuracy) {
  LineWriter line(buffer);
  printDevice(line, "Epoch", device);
  line.print(", Epoch=%" PRIu64 ", Time=%.2f sec", epoch, seconds);
  if (accuracy)
    line.print(", Accuracy=%.6g", *accuracy);
  line.print("\n");
  return line.text();
}

std::string_view formatLossLine(std::span<char> buffer, uint64_t step,
                                double loss) {
  LineWriter line(buffer);
  line.print("%" PRIu64 " %.17g %a\n", step, loss, loss);
  return line.text();
}

bool writeText(int file, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void TrainLog::write(std::string_view text) {
  if (file_ < 0 || writeText(file_, text) || std::exchange(hasFailed_, true))
    return;
  warn_(std::string("the log cannot be written: ") + std::strerror(errno) +
        "; training goes on");
}

} // namespace kiln
