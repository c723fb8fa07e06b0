// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/Ranks.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln {

namespace {

volatile std::sig_atomic_t receivedSignal = 0;
volatile pid_t launcher = 0;

/// mpirun ends its ranks at once on SIGTERM; SIGUSR1 it passes on to them, and
/// they stop after the step. The second signal is for who cannot wait.
void passOn(int signal) {
  if (launcher > 0)
    kill(launcher, receivedSignal ? SIGTERM : SIGUSR1);
  receivedSignal = signal;
}

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
                                 pid_t parent) {
  // Ctrl-C is for the command, which passes it on in its own way.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(1);
  int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0)
    dup2(nothing, STDIN_FILENO);
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

int describeEnd(int status) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (receivedSignal && code == 128 + SIGUSR1) // What was passed on for it.
    return 128 + receivedSignal;
  if (code <= 128 || receivedSignal)
    return code;
  printError("a rank was lost: it ended with signal " +
             std::to_string(code - 128) + "; the others were stopped");
  return static_cast<int>(Code::rankLost);
}

} // namespace

int runRanks(const std::string &artifact, const RunOptions &options) {
  std::vector<std::string> command = makeCommand(artifact, options);
  fflush(nullptr);
  struct sigaction action = {}, interrupt, terminate;
  action.sa_handler = passOn;
  pid_t parent = getpid();
  // A signal between the fork and the note of the child's number would be lost.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  receivedSignal = 0;
  sigaction(SIGINT, &action, &interrupt);
  sigaction(SIGTERM, &action, &terminate);
  pid_t child = fork();
  if (child == 0) {
    sigaction(SIGINT, &interrupt, nullptr);
    sigaction(SIGTERM, &terminate, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    becomeLauncher(command, parent);
  }
  launcher = child;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) {
    printError(std::string("cannot start mpirun: ") + strerror(errno));
    return 1;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  launcher = 0;
  sigaction(SIGINT, &interrupt, nullptr);
  sigaction(SIGTERM, &terminate, nullptr);
  return describeEnd(status);
}

} // namespace kiln
