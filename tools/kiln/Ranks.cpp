// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/Ranks.h"
#include "runtime/TemporaryFiles.h"
#include "runtime/collective/Group.h"
#include "runtime/collective/Patience.h"
#include "runtime/collective/Roster.h"
#include "runtime/collective/Stall.h"
#include "runtime/session/Signals.h"
#include "tools/kiln/CompilerProcess.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <poll.h>
#include <span>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;
using State = Roster::State;

volatile std::sig_atomic_t receivedSignal = 0;

void noteSignal(int signal) { receivedSignal = signal; }

/// While it lives, signals that stop the command are blocked, except in `wait`,
/// and noted: none is lost between a check and a wait.
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
      takeSignal(numbers[i], action, actions_[i]);
  }
  ~StopSignals() { restore(); }
  StopSignals(const StopSignals &) = delete;

  /// Also called in a child.
  void restore() const {
    for (size_t i = 0; i < std::size(numbers); ++i)
      sigaction(numbers[i], &actions_[i], nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  /// Waits until one of the files can be read, a signal comes, or the poll
  /// interval ends.
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
  static constexpr int numbers[] = {SIGINT, SIGTERM, SIGHUP};
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
  add("name", options.name);
  add("losses", options.losses);
  add("resume", options.resume);
  add("trace", options.trace.path);
  if (options.trace.steps.first != 0) // Else they were not limited.
    add("trace-steps", std::to_string(options.trace.steps.first) + ":" +
                           std::to_string(options.trace.steps.last));
  if (options.lastStep)
    add("stop-after", std::to_string(*options.lastStep));
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

/// Makes mpirun end its ranks, stopped ones too, and itself.
constexpr int endOfMpirun = SIGINT;

[[noreturn]] void becomeLauncher(const std::vector<std::string> &command,
                                 const std::string &roster, pid_t parent) {
  // Ctrl-C is for the command, which tells the ranks in its own way.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, endOfMpirun);
  if (getppid() != parent)
    _exit(1);
  int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0)
    dup2(nothing, STDIN_FILENO);
  // mpirun ends its ranks on these signals, even if it was started to ignore
  // them; it does not pass on that they are blocked. Text that nobody reads is
  // dropped. A service manager sends its signal to all processes, and the ranks
  // need time to save, which mpirun would not give them.
  sigset_t blocked;
  sigemptyset(&blocked);
  for (int number : {SIGPIPE, SIGTERM, SIGHUP})
    sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
  setenv(Roster::variable, roster.c_str(), 1);
  // Containers often forbid single copies, which then print warnings.
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

/// A process handle that survives pid reuse.
class Process {
public:
  Process() = default;
  explicit Process(pid_t number)
      : file_(static_cast<int>(syscall(SYS_pidfd_open, number, 0))) {}
  Process(Process &&other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Process &operator=(Process &&other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Process() {
    if (file_ >= 0)
      close(file_);
  }

  bool isOpen() const { return file_ >= 0; }
  /// Can be read when the process has ended.
  int file() const { return file_; }

private:
  int file_ = -1;
};

/// mpirun and its ranks, from their start to their end.
class Launch {
public:
  Launch(pid_t mpirun, Roster roster, std::chrono::seconds limit)
      : mpirun_(mpirun), roster_(std::move(roster)), limit_(limit),
        patience_(limit), mpirunProcess_(mpirun), ranks_(roster_.ranks()) {}
  Launch(const Launch &) = delete;

  /// Returns the exit code.
  int attend(const StopSignals &signals) {
    while (true) {
      pid_t ended = waitpid(mpirun_, &status_, WNOHANG);
      if (ended == mpirun_ || (ended < 0 && errno != EINTR))
        return describeEnd();
      openRanks();
      if (int signal = StopSignals::take())
        stop(signal);
      if (!killing_)
        watchWaiting();
      if (killing_ && Clock::now() > *killing_)
        kill(mpirun_, SIGKILL); // Its ranks go with it.
      awaitEnds(signals);
    }
  }

private:
  void openRanks() {
    for (uint32_t rank = 0; rank < roster_.ranks(); ++rank)
      if (pid_t number = roster_.process(rank);
          number > 0 && !ranks_[rank].isOpen())
        ranks_[rank] = Process(number);
  }

  /// Notes the first rank to end without having left: mpirun then ends all
  /// ranks.
  void awaitEnds(const StopSignals &signals) {
    files_.assign({{mpirunProcess_.file(), POLLIN, 0}});
    // Once one is known, ended ranks, which stay readable, do not matter.
    for (uint32_t rank = 0; !lost_ && rank < roster_.ranks(); ++rank)
      files_.push_back(
          {roster_.state(rank) == State::left ? -1 : ranks_[rank].file(),
           POLLIN, 0});
    signals.wait(files_);
    for (uint32_t rank = 0; !lost_ && rank < roster_.ranks(); ++rank)
      if (files_[rank + 1].revents && roster_.state(rank) != State::left)
        lost_ = rank;
  }

  /// As in one process: the first signal stops training after the step; before
  /// training there is nothing to save, and a later second signal ends it at
  /// once.
  void stop(int signal) {
    Clock::time_point now = Clock::now();
    bool isFirst = !stoppedBy_;
    if (isFirst)
      stoppedAt_ = now;
    else if (now - stoppedAt_ < sameRequest)
      return;
    stoppedBy_ = signal;
    isTraining_ = roster_.requestStop(signal);
    if (isFirst && isTraining_)
      fputs("kiln: stopping after this step; signal again to stop at once\n",
            stderr);
    else
      end();
  }

  /// Times out waits in MPI's start, communicator creation and end, where ranks
  /// block each other without a limit.
  void watchWaiting() {
    uint64_t progress = 0;
    State least = State::left, most = State::absent;
    bool isStarting = false;
    for (uint32_t rank = 0; rank < roster_.ranks(); ++rank) {
      State state = roster_.state(rank);
      progress += static_cast<uint64_t>(state);
      least = std::min(least, state);
      most = std::max(most, state);
      isStarting |= state < State::connected || state == State::linking;
    }
    if (std::exchange(progress_, progress) != progress ||
        !(isStarting || most >= State::leaving))
      patience_ = Patience(limit_);
    if (!patience_.isOver())
      return;
    std::vector<uint32_t> missing = findMissing(least);
    printError(std::string(isStarting ? "start" : "end") +
               " of MPI timed out: " + nameRanks(missing) +
               (missing.size() == 1 ? " has" : " have") + " not come within " +
               std::to_string(limit_.count()) + " s (KILN_COLLECTIVE_TIMEOUT)");
    isTimedOut_ = true;
    end();
  }

  /// Ranks that do not run, or else those farthest behind: a rank blocked in
  /// MPI may have got no further than the one it waits for.
  std::vector<uint32_t> findMissing(State least) const {
    std::vector<uint32_t> halted, behind;
    for (uint32_t rank = 0; rank < roster_.ranks(); ++rank) {
      if (roster_.state(rank) == State::absent || isStopped(rank))
        halted.push_back(rank);
      if (roster_.state(rank) == least)
        behind.push_back(rank);
    }
    return halted.empty() ? behind : halted;
  }

  bool isStopped(uint32_t rank) const {
    std::ifstream file("/proc/" + std::to_string(roster_.process(rank)) +
                       "/stat");
    std::string text;
    std::getline(file, text);
    // The state follows the name, which may hold anything.
    size_t name = text.rfind(") ");
    return name != std::string::npos && name + 2 < text.size() &&
           (text[name + 2] == 'T' || text[name + 2] == 't');
  }

  void end() {
    constexpr std::chrono::seconds grace{5};
    roster_.close();
    // An mpirun that is ending already would crash.
    if (!isEnding())
      kill(mpirun_, endOfMpirun);
    if (!killing_)
      killing_ = Clock::now() + grace;
  }

  /// Whether a rank is done, or lost: mpirun ends with the ranks, or ends them.
  bool isEnding() const {
    for (uint32_t rank = 0; rank < roster_.ranks(); ++rank)
      if (roster_.state(rank) >= State::leaving)
        return true;
    return lost_.has_value();
  }

  int describeEnd() const {
    int code =
        WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    // A rank that left by itself was not lost, even if its code says that a
    // signal stopped it. If that signal came to mpirun too, the rank was ended
    // on its way out.
    State done = stoppedBy_ ? State::leaving : State::left;
    for (uint32_t rank = 0; rank < roster_.ranks(); ++rank)
      if (roster_.state(rank) >= done && roster_.exitCode(rank) != 0)
        return roster_.exitCode(rank);
    if (isTimedOut_)
      return static_cast<int>(Code::timedOut);
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
    if (WIFSIGNALED(status_))
      printError("mpirun was lost: it ended with " +
                 describeSignal(code - 128) + ", and all ranks with it");
    else
      printError("a rank was lost: " + (lost_ ? rankName(*lost_) : "it") +
                 " ended with " + describeSignal(code - 128) +
                 "; the other ranks were stopped");
    return static_cast<int>(Code::rankLost);
  }

  pid_t mpirun_;
  Roster roster_;
  std::chrono::seconds limit_;
  Patience patience_;
  uint64_t progress_ = 0; // Sum over all ranks.
  bool isTimedOut_ = false;
  Process mpirunProcess_;
  std::vector<Process> ranks_;
  std::vector<pollfd> files_;
  std::optional<uint32_t> lost_;
  int status_ = 0;
  int stoppedBy_ = 0;
  Clock::time_point stoppedAt_;              // By the first signal.
  bool isTraining_ = false;                  // When it was stopped.
  std::optional<Clock::time_point> killing_; // When patience with mpirun ends.
};

} // namespace

Status checkSessionFolder() {
  // Of 4.1: its store of facts about ranks is made at full size.
  constexpr uint64_t sessionBytes = uint64_t{10} << 20;
  std::string variable, folder = "/tmp";
  for (const char *name :
       {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"})
    if (const char *value = std::getenv(name); value && variable.empty()) {
      variable = name;
      folder = value;
    }
  std::error_code error;
  std::filesystem::path place = folder; // Open MPI makes the rest.
  while (place.has_relative_path() && !std::filesystem::exists(place, error))
    place = place.parent_path();
  PendingFile session((place / "kiln_session").string());
  int failure =
      session.error() ? session.error() : session.reserve(sessionBytes);
  if (failure == 0)
    return Status();
  return Status(Code::io, (variable.empty() ? "" : variable + " ") + folder +
                              ": Open MPI needs 10 MiB there to start ranks: " +
                              strerror(failure) +
                              "; free some, or let TMPDIR name another folder");
}

int runRanks(const std::string &artifact, const RunOptions &options) {
  Expected<CollectiveSettings> settings = CollectiveSettings::fromEnvironment();
  if (!settings.ok()) {
    printError(settings.status().message());
    return settings.status().exitCode();
  }
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
  return Launch(child, std::move(*roster), settings->limit).attend(signals);
}

} // namespace kiln
