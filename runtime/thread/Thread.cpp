// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/thread/Thread.h"

#include <csignal>
#include <cstring>

namespace kiln {

/// Kernels keep up to 1 MiB of temporaries on the stack.
static constexpr size_t stackBytes = size_t{8} << 20;

static void *serve(void *body) {
  (*static_cast<std::function<void()> *>(body))();
  return nullptr;
}

Expected<Thread> Thread::start(const char *name, std::function<void()> body) {
  Thread thread;
  auto kept = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stackBytes);
  // The thread inherits this mask. A fault of its own must reach the handlers
  // of mapped files and of kernels (MappingGuard, cpu::FaultGuard): blocked, it
  // would end the process.
  sigset_t blocked, saved;
  ::sigfillset(&blocked);
  for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL})
    ::sigdelset(&blocked, fault);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &saved);
  int error = ::pthread_create(&thread.thread_, &attributes, serve, kept.get());
  ::pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error != 0)
    return Status(Code::failed, std::string("cannot start thread ") + name +
                                    ": " + std::strerror(error));
  ::pthread_setname_np(thread.thread_, name);
  thread.body_ = std::move(kept);
  return thread;
}

Thread::~Thread() {
  if (body_)
    ::pthread_join(thread_, nullptr);
}

} // namespace kiln
