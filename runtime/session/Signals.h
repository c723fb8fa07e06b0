// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_SIGNALS_H
#define KILN_RUNTIME_SESSION_SIGNALS_H

#include <csignal>
#include <string>

namespace kiln {

/// Installs `action` for the signal, unless the process was started with the
/// signal ignored, as by nohup: then it stays so. `before` is the old action.
void takeSignal(int signal, const struct sigaction &action,
                struct sigaction &before);

/// "signal 15 (SIGTERM)"
std::string describeSignal(int signal);

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_SIGNALS_H
