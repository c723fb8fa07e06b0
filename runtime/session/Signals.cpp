// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/Signals.h"

#include <cstring>

namespace kiln {

void takeSignal(int signal, const struct sigaction &action,
                struct sigaction &before) {
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN)
    ::sigaction(signal, &action, nullptr);
}

std::string describeSignal(int signal) {
  const char *name = ::sigabbrev_np(signal);
  return "signal " + std::to_string(signal) +
         (name ? std::string(" (SIG") + name + ")" : "");
}

} // namespace kiln
