// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/FaultGuard.h"
#include "runtime/Status.h"

#include <csignal>
#include <cstring>
#include <iterator>
#include <mutex>
#include <unistd.h>

namespace kiln::cpu {

constinit thread_local const char *FaultGuard::current = nullptr;

namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction actionsBefore[std::size(signals)];

/// Nothing else may be called here.
void print(const char *text) {
  if (::write(2, text, std::strlen(text)) < 0)
    return; // There is nobody to tell.
}

} // namespace

void FaultGuard::endProcess(int signal) {
  if (!current) {
    // The instruction is repeated, and faults again.
    for (size_t i = 0; i < std::size(signals); ++i)
      if (signals[i] == signal)
        ::sigaction(signal, &actionsBefore[i], nullptr);
    return;
  }
  print("kiln: error: kernel '");
  print(current);
  print(signal == SIGFPE || signal == SIGILL
            ? "' has run an instruction that this processor refuses"
            : "' has left the memory of its device");
  print(": the artifact's index does not fit its code; compile again with "
        "this kiln\n");
  ::_exit(static_cast<int>(Code::inputRejected));
}

void FaultGuard::install() {
  static std::once_flag isInstalled;
  std::call_once(isInstalled, [] {
    struct sigaction action = {};
    action.sa_handler = endProcess;
    for (size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], &action, &actionsBefore[i]);
  });
}

} // namespace kiln::cpu
