// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/Ranks.h"
#include "runtime/collective/Patience.h"
#include "runtime/collective/Roster.h"
#include "tools/kiln/CompilerProcess.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <span>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;
using Stage = Roster::Stage;

volatile std::sig_atomic_t receivedSignal = 0;

void noteSignal(int signal) { receivedSignal = signal; }

/// While it lives, signals that stop the command are held back, except in
/// `wait`, and noted: none is lost between a look and a wait.
class StopSignals {
public:
  StopSignals() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before_);
    receivedSignal = SignalGuard::received();
    struct sigaction action = {};
    action.sa_handler = noteSignal;
    for (size_t i = 0; i < std::size(numbers); ++i)
      sigaction(numbers[i], &action, &actions_[i]);
  }
  ~StopSignals() { restore(); }
  StopSignals(const StopSignals &) = delete;

  /// For a child too.
  void restore() const {
    for (size_t i = 0; i < std::size(numbers); ++i)
      sigaction(numbers[i], &actions_[i], nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  /// Until one of the files can be read, a signal comes, or it is time to look
  /// again.
  void wait(std::span<pollfd> files) const {
    sigset_t mask = before_;
    for (int number : numbers)
      sigdelset(&mask, number);
    timespec time{0, std::chrono::nanoseconds(Patience::look).count()};
    ppoll(files.data(), files.size(), &time, &mask);
  }

  /// The signal that came since the last call; 0 for none.
  static int take() { return std::exchange(receivedSignal, 0); }

private:
  static constexpr int numbers[] = {SIGINT, SIGTERM};
  sigset_t before_;
  struct sigaction actions_[std::size(numbers)];
};

std::vector<std::string> makeCommand(const std::string &artifact,
                                     const RunOptions &options) {
  std::error_code error;
  std::vector<std::string> command = {"mpirun",
                                      "-q",
                                      "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "-n",
                                      std::to_string(options.processes)};
  if (geteuid() == 0)
    command.push_back("--allow-run-as-root");
  command.push_back(
      std::filesystem::read_symlink("/proc/self/exe", error).string());
  command.push_back("run");
  auto add = [&](const char *name, const std::string &value) {
    if (!value.empty())
      command.push_back(std::string("--") + name + "=" + value);
  };
  add("losses", options.losses);
  add("resume", options.resume);
  add("trace", options.trace);
  if (options.steps)
    add("steps", std::to_string(*options.steps));
  if (options.peakGflops)
    add("peak-gflops", std::to_string(*options.peakGflops));
  if (options.peakGbs)
    add("peak-gbs", std::to_string(*options.peakGbs));
  if (options.isProfiled)
    command.push_back("--profile");
  if (options.runFolder.empty())
    command.push_back("--no-run-folder");
  add("run-folder", options.runFolder);
  command.push_back(artifact);
  return command;
}

[[noreturn]] void becomeLauncher(const std::vector<std::string> &command,
                                 const std::string &roster, pid_t parent) {
  // Ctrl-C is for the command, which tells the ranks in its own way.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(1);
  int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0)
    dup2(nothing, STDIN_FILENO);
  setenv(Roster::variable, roster.c_str(), 1);
  // Containers often forbid what this speeds up, at the price of warnings.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  std::vector<char *> arguments;
  for (const std::string &word : command)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  printError(std::string("cannot start mpirun: ") + strerror(errno) +
             "; install openmpi-bin");
  _exit(1);
}

/// mpirun and its ranks, from their start to their end.
class Launch {
public:
  Launch(pid_t mpirun, Roster roster)
      : mpirun_(mpirun), roster_(std::move(roster)),
        mpirunFile_(static_cast<int>(syscall(SYS_pidfd_open, mpirun, 0))) {}
  ~Launch() {
    if (mpirunFile_ >= 0)
      close(mpirunFile_);
  }
  Launch(const Launch &) = delete;

  /// Returns the exit code.
  int attend(const StopSignals &signals) {
    while (true) {
      pid_t ended = waitpid(mpirun_, &status_, WNOHANG);
      if (ended == mpirun_ || (ended < 0 && errno != EINTR))
        return describeEnd();
      if (int signal = StopSignals::take())
        stop(signal);
      if (killing_ && Clock::now() > *killing_)
        kill(mpirun_, SIGKILL); // Its ranks go with it.
      pollfd file{mpirunFile_, POLLIN, 0};
      signals.wait({&file, 1});
    }
  }

private:
  /// As in one process: the first signal stops training after the step; before
  /// that there is nothing to save, and the second is for who cannot wait.
  void stop(int signal) {
    bool isFirst = !stoppedBy_;
    stoppedBy_ = signal;
    isTraining_ = roster_.requestStop(signal);
    if (isFirst && isTraining_)
      fputs("kiln: stopping after this step; signal again to stop at once\n",
            stderr);
    else
      end();
  }

  void end() {
    constexpr std::chrono::seconds grace{5};
    kill(mpirun_, SIGTERM);
    if (!killing_)
      killing_ = Clock::now() + grace;
  }

  int describeEnd() const {
    int code =
        WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    // A rank's own end is not that of one which was lost, even if its code says
    // that a signal stopped it.
    for (uint32_t rank = 0; rank < roster_.ranks(); ++rank)
      if (roster_.stage(rank) == Stage::left && roster_.exitCode(rank) != 0)
        return roster_.exitCode(rank);
    if (code == 0)
      return 0;
    if (killing_) {
      printError(
          "stopped by " + describeSignal(stoppedBy_) +
          (isTraining_ ? " in the midst of a step" : " before the first step"));
      return 128 + stoppedBy_;
    }
    if (code <= 128)
      return code;
    printError("a rank was lost: it ended with " + describeSignal(code - 128) +
               "; the others were stopped");
    return static_cast<int>(Code::rankLost);
  }

  pid_t mpirun_;
  Roster roster_;
  int mpirunFile_;
  int status_ = 0;
  int stoppedBy_ = 0;
  bool isTraining_ = false;                  // When it was stopped.
  std::optional<Clock::time_point> killing_; // When patience with mpirun ends.
};

} // namespace

int runRanks(const std::string &artifact, const RunOptions &options) {
  Expected<Roster> roster = Roster::create(options.processes);
  if (!roster.ok()) {
    printError(roster.status().message());
    return roster.status().exitCode();
  }
  std::vector<std::string> command = makeCommand(artifact, options);
  std::string setting = roster->setting();
  fflush(nullptr);
  pid_t parent = getpid();
  StopSignals signals;
  pid_t child = fork();
  if (child == 0) {
    signals.restore();
    becomeLauncher(command, setting, parent);
  }
  if (child < 0) {
    printError(std::string("cannot start mpirun: ") + strerror(errno));
    return 1;
  }
  return Launch(child, std::move(*roster)).attend(signals);
}

} // namespace kiln
