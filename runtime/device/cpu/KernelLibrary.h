// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_KERNELLIBRARY_H
#define KILN_RUNTIME_DEVICE_CPU_KERNELLIBRARY_H

#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace kiln::cpu {

/// One stage of a kernel: items [begin, end) of it, as worker number `worker`.
using StageFunction = void (*)(void *const *buffers, int64_t begin, int64_t end,
                               int64_t worker);

/// Generated code mapped from memory. Only verified bytes may be given to it:
/// loading is executing. Functions are valid as long as the library lives.
class KernelLibrary {
public:
  static Expected<KernelLibrary> load(std::span<const std::byte> bytes);

  KernelLibrary(KernelLibrary &&other) noexcept;
  KernelLibrary &operator=(KernelLibrary &&other) noexcept;
  ~KernelLibrary();

  /// The library's own function with this name, or null.
  StageFunction find(const char *symbol) const;

private:
  KernelLibrary(int file, void *handle) : file_(file), handle_(handle) {}

  int file_ = -1;
  void *handle_ = nullptr;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_KERNELLIBRARY_H
