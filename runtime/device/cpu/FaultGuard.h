// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_FAULTGUARD_H
#define KILN_RUNTIME_DEVICE_CPU_FAULTGUARD_H

namespace kiln::cpu {

/// Says that this thread runs code of an artifact while it lives. The bytes
/// that a kernel touches follow from its code and from ids in its buffers,
/// which no check of an index can know: a fault there ends the process with
/// the kernel's name and `Code::inputRejected`, in place of a signal. Faults
/// elsewhere take their usual course.
class FaultGuard {
public:
  /// The name must outlive the guard.
  explicit FaultGuard(const char *kernel) noexcept { current = kernel; }
  ~FaultGuard() { current = nullptr; }
  FaultGuard(const FaultGuard &) = delete;

  /// Before the first guard of the process; later calls do nothing.
  static void install();

private:
  static void endProcess(int signal);

  static thread_local constinit const char *current;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_FAULTGUARD_H
