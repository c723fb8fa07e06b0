// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_SIGNALS_H
#define KILN_RUNTIME_SESSION_SIGNALS_H

#include <chrono>
#include <csignal>
#include <string>

namespace kiln {

/// Installs `action` for the signal, unless the process was started with the
/// signal ignored, as by nohup: then it stays so. `before` is the old action.
void takeSignal(int signal, const struct sigaction &action,
                struct sigaction &before);

/// A stop signal that comes this soon after the first is the same request: GNU
/// timeout sends each to the command and then to its process group.
inline constexpr std::chrono::seconds sameRequest{1};

/// "signal 15 (SIGTERM)"
std::string describeSignal(int signal);

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_SIGNALS_H
