// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/CompilerProcess.h"
#include "compiler/CompilerLibrary.h"
#include "compiler/config/Cache.h"
#include "runtime/FindLibrary.h"
#include "runtime/session/Signals.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln {

namespace {

volatile std::sig_atomic_t receivedSignal = 0;
volatile pid_t runningChild = 0;

/// The signal that ends the child; 0 for the one that was received.
volatile std::sig_atomic_t endingSignal = 0;

void endChild() {
  if (runningChild <= 0)
    return;
  kill(runningChild, endingSignal ? endingSignal : receivedSignal);
}

void noteSignal(int signal) {
  int saved = errno;
  receivedSignal = signal;
  endChild();
  errno = saved;
}

constexpr int guardedSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction unguarded[std::size(guardedSignals)];
int guards = 0;

/// Restores the signal actions from before any guard.
void restoreSignals() {
  for (size_t i = 0; i < std::size(guardedSignals); ++i)
    sigaction(guardedSignals[i], &unguarded[i], nullptr);
}

/// The compiler's current activity, in memory shared with the command.
struct SharedActivity {
  std::atomic<char> name[32];
};
SharedActivity *sharedActivity = nullptr;

void showActivity(const char *name) {
  for (std::atomic<char> &place : sharedActivity->name)
    place = *name ? *name++ : '\0';
}

/// Called only where it is shown. Compiling works without it.
void shareActivity() {
  void *page = mmap(nullptr, sizeof(SharedActivity), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED)
    sharedActivity = new (page) SharedActivity{};
}

std::string describeActivity() {
  std::string text;
  for (size_t i = 0; sharedActivity && i + 1 < std::size(sharedActivity->name);
       ++i)
    if (char letter = sharedActivity->name[i])
      text += letter;
  return text.empty() ? "" : ": " + text;
}

using CompileFunction = int (*)(const KilnCompileRequest *);

CompileFunction openCompiler(const std::string &library) {
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *symbol = handle ? dlsym(handle, "kilnCompile") : nullptr;
  if (!symbol)
    printError("cannot open the compiler: " + std::string(dlerror()));
  return reinterpret_cast<CompileFunction>(symbol);
}

/// The message with which the compiler rejects the model; null for none.
const char *checkModel(const void *files, const uint8_t *model, size_t) {
  static std::string message;
  Status status = static_cast<const InputFiles *>(files)->checkModel(
      *artifact::GetIndex(model));
  message = "kiln: error: " + status.message();
  return status.ok() ? nullptr : message.c_str();
}

int callCompiler(const std::string &library, const CompileArguments &options,
                 const std::string &output, const InputFiles *files) {
  CompileFunction compile = openCompiler(library);
  if (!compile)
    return 1;
  std::vector<const char *> overrides;
  for (const std::string &text : options.overrides)
    overrides.push_back(text.c_str());
  KilnCompileRequest request = {};
  request.size = sizeof(request);
  request.configPath = options.config.c_str();
  request.overrides = overrides.data();
  request.overrideCount = overrides.size();
  request.outputPath = output.c_str();
  request.outputName =
      options.output.empty() ? options.config.c_str() : options.output.c_str();
  request.dumpFolder =
      options.dumpFolder.empty() ? nullptr : options.dumpFolder.c_str();
  std::string cache = options.usesCache ? Cache::defaultFolder() : "";
  request.cacheFolder = cache.empty() ? nullptr : cache.c_str();
  request.isReference = options.isReference;
  if (sharedActivity)
    request.showActivity = showActivity;
  if (files)
    request.checkModel = checkModel;
  request.context = files;
  return compile(&request);
}

/// Waits for a child; shows the compiler's activity if it is shared.
int waitForChild(pid_t child) {
  bool isShown = sharedActivity != nullptr;
  auto start = std::chrono::steady_clock::now();
  int status = 0;
  while (true) {
    pid_t ended = waitpid(child, &status, isShown ? WNOHANG : 0);
    if (ended == child || (ended < 0 && errno != EINTR))
      break;
    if (!isShown)
      continue;
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    fprintf(stderr, "\r\x1b[KCompiling%s, %.1f s", describeActivity().c_str(),
            time.count());
    usleep(100'000);
  }
  if (isShown)
    fputs("\r\x1b[K", stderr);
  return status;
}

} // namespace

SignalGuard::SignalGuard() {
  if (guards++ > 0)
    return;
  struct sigaction action = {};
  action.sa_handler = noteSignal;
  for (size_t i = 0; i < std::size(guardedSignals); ++i)
    takeSignal(guardedSignals[i], action, unguarded[i]);
}

SignalGuard::~SignalGuard() {
  if (--guards == 0)
    restoreSignals();
}

int SignalGuard::received() { return receivedSignal; }

int runInChild(const std::function<int()> &function, ChildState state) {
  SignalGuard guard;
  endingSignal = state == ChildState::none ? SIGKILL : 0;
  fflush(nullptr);
  pid_t parent = getpid();
  // A signal between the fork and the store of the child's pid would be lost.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pid_t child = fork();
  if (child == 0) {
    // If the command is killed outright, the child must not go on alone.
    prctl(PR_SET_PDEATHSIG, endingSignal ? endingSignal : SIGTERM);
    restoreSignals();
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (getppid() != parent)
      _exit(1);
    int code = function();
    fflush(nullptr);
    // Not exit: destructors have nothing to say.
    _exit(code);
  }
  runningChild = child;
  // A signal that came before there was a child to stop.
  if (receivedSignal)
    endChild();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) {
    printError(std::string("cannot start a process: ") + strerror(errno));
    return -1;
  }
  int status = waitForChild(child);
  runningChild = 0;
  return status;
}

std::string findCompilerLibrary() {
  if (const char *named = std::getenv("KILN_COMPILER_LIBRARY"))
    return named;
  return findLibrary("libKilnCompiler.so");
}

int compileInChild(const std::string &library, const CompileArguments &options,
                   const std::string &output, const InputFiles *files) {
  SignalGuard guard;
  if (!sharedActivity && isatty(STDERR_FILENO))
    shareActivity();
  int status = SignalGuard::received() ? 0 : runInChild([&] {
    return callCompiler(library, options, output, files);
  });
  if (status == -1)
    return 1;
  if (int signal = SignalGuard::received())
    return 128 + signal;
  if (!WIFSIGNALED(status))
    return WEXITSTATUS(status);
  int signal = WTERMSIG(status);
  // The terminal sends Ctrl-C to the child as well, and it may be quicker.
  if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
    return 128 + signal;
  printError("the compiler died: " + std::string(strsignal(signal)) +
             (signal == SIGKILL ? " (out of memory?)" : ""));
  return exitInternal;
}

bool canOpenCompiler(const std::string &library) {
  return runInChild([&] { return openCompiler(library) ? 0 : 1; }) == 0;
}

} // namespace kiln
