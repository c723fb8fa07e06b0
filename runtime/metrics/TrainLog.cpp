// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/metrics/TrainLog.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <unistd.h>

namespace kiln {

/// What snprintf left in the buffer when it wanted to write `wanted`
/// characters.
static std::string_view used(std::span<char> buffer, int wanted) {
  size_t length = wanted < 0 ? 0 : static_cast<size_t>(wanted);
  return {buffer.data(), std::min(length, buffer.size() - 1)};
}

std::string_view formatTrainLine(std::span<char> buffer,
                                 const TrainRecord &record) {
  int wanted = std::snprintf(
      buffer.data(), buffer.size(),
      "| Train Device=%.*s:%" PRIu64 ", Step=%" PRIu64
      ", Loss=%.6g, Rate=%.2f samples/sec, GlobalRate=%.2f samples/sec\n",
      static_cast<int>(record.device.size()), record.device.data(),
      record.devices, record.step, record.loss, record.rate, record.globalRate);
  return used(buffer, wanted);
}

std::string_view formatLossLine(std::span<char> buffer, uint64_t step,
                                double loss) {
  return used(buffer,
              std::snprintf(buffer.data(), buffer.size(),
                            "%" PRIu64 " %.17g %a\n", step, loss, loss));
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

} // namespace kiln
