// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_SIGNALWATCH_H
#define KILN_RUNTIME_SESSION_SIGNALWATCH_H

namespace kiln {

/// While it lives the first signal that asks to stop is noted, its repeats are
/// the same request, and a later one ends the process. A bare mpirun ends its
/// ranks itself on SIGINT and SIGTERM; SIGUSR1 is what it passes on.
class SignalWatch {
public:
  SignalWatch();
  /// The repeat of a signal may come when the state is saved already: it must
  /// not spoil the exit code, so the watch goes on after a signal.
  ~SignalWatch();
  SignalWatch(const SignalWatch &) = delete;

  /// The signal noted since the last watch began, or 0.
  static int received();
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_SIGNALWATCH_H
