// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/SignalWatch.h"
#include "runtime/collective/Roster.h"
#include "runtime/metrics/TrainLog.h"
#include "runtime/session/Signals.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <utility>

namespace kiln {

namespace {

std::atomic<int> receivedSignal = 0;
std::atomic<int64_t> receivedAt = 0; // In ns; any thread may get the signal.
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free,
              "a signal handler writes them");

/// Calls only what may be called in a signal handler.
void noteSignal(int signal) {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t time = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec, first = 0;
  if (!receivedAt.compare_exchange_strong(first, time)) {
    if (time - first < std::chrono::nanoseconds(sameRequest).count())
      return;
    (void)std::signal(signal, SIG_DFL);
    (void)std::raise(signal); // Ends the process once the handler returns.
    return;
  }
  receivedSignal = signal;
  if (Roster::isJoined())
    return; // The command speaks for all.
  int saved = errno;
  (void)writeText(2, "kiln: stopping after this step; signal again to stop "
                     "at once\n");
  errno = saved;
}

constexpr int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
struct sigaction before[std::size(numbers)];
bool isHeld = false;

} // namespace

SignalWatch::SignalWatch() {
  receivedSignal = 0;
  receivedAt = 0;
  if (std::exchange(isHeld, true))
    return;
  struct sigaction action = {};
  action.sa_handler = noteSignal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(numbers); ++i)
    takeSignal(numbers[i], action, before[i]);
}

SignalWatch::~SignalWatch() {
  if (receivedSignal != 0)
    return;
  for (size_t i = 0; i < std::size(numbers); ++i)
    ::sigaction(numbers[i], &before[i], nullptr);
  isHeld = false;
}

int SignalWatch::received() { return receivedSignal; }

} // namespace kiln
