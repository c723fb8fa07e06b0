// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_THREAD_THREAD_H
#define KILN_RUNTIME_THREAD_THREAD_H

#include "runtime/Status.h"

#include <functional>
#include <memory>
#include <pthread.h>

namespace kiln {

/// A thread with a stack for kernels. Signals do not reach it: they are for the
/// thread that runs steps. Joined when the object goes.
class Thread {
public:
  /// `failed` if the system refuses it. The name has at most 15 characters.
  static Expected<Thread> start(const char *name, std::function<void()> body);

  Thread(Thread &&other) noexcept = default;
  ~Thread();

private:
  Thread() = default;

  std::unique_ptr<std::function<void()>> body_; // Null after a move.
  pthread_t thread_;
};

} // namespace kiln

#endif // KILN_RUNTIME_THREAD_THREAD_H
