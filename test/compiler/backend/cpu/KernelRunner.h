// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_COMPILER_BACKEND_CPU_KERNELRUNNER_H
#define KILN_TEST_COMPILER_BACKEND_CPU_KERNELRUNNER_H

#include "compiler/backend/cpu/ObjectCode.h"

#include <functional>
#include <memory>

namespace kiln::cpu {

/// A kernel compiled, linked and loaded into this process.
class LoadedKernel {
public:
  using Emit = std::function<StagePlan(mlir::ModuleOp, const CpuTarget &)>;
  using StageFunction = void (*)(void *const *, int64_t, int64_t, int64_t);

  LoadedKernel(const CpuTarget &target, const Emit &emit);
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel &) = delete;

  /// Runs one worker's share of a stage; `buffers` ends with scratch().
  void runShare(size_t stage, void *const *buffers, int64_t worker,
                int64_t workers, int64_t round = 0) const;
  /// Runs all stages, each on `workers` threads that share out the items, with
  /// scratch that is NaN at first.
  void run(std::vector<void *> buffers, int64_t workers) const;

  const StagePlan &code() const { return kernel; }
  /// Room for `workers`, allocated once and filled with NaN, so that reads of
  /// unwritten scratch show.
  void *scratch(int64_t workers) const;
  double compileSeconds() const { return seconds; }

private:
  int64_t scratchBytes(int64_t workers) const;

  StagePlan kernel;
  std::vector<StageFunction> functions;
  void *library = nullptr;
  int file = -1;
  double seconds = 0;
  mutable std::unique_ptr<char[]> memory;
  mutable int64_t memoryWorkers = 0;
};

/// A buffer whose last byte is followed by an unmapped page, so that code that
/// reads or writes past the end crashes. `count` elements are aligned to their
/// size only.
class GuardedBuffer {
public:
  explicit GuardedBuffer(size_t bytes);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer &) = delete;
  void *data() const { return start; }

private:
  void *mapping;
  size_t mappedBytes;
  void *start;
};

} // namespace kiln::cpu

#endif // KILN_TEST_COMPILER_BACKEND_CPU_KERNELRUNNER_H
