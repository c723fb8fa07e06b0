// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_COMPILER_BACKEND_CPU_ATTENTION_COMPILEDKERNEL_H
#define KILN_TEST_COMPILER_BACKEND_CPU_ATTENTION_COMPILEDKERNEL_H

#include "compiler/backend/cpu/EmitAttention.h"

#include "mlir/IR/MLIRContext.h"

#include <memory>
#include <string>
#include <vector>

namespace kiln::cpu::test {

struct ShapeOptions {
  int64_t batch, sequence, heads, headWidth;
  bool isCausal;
  double scale;
  bool isDouble;
  int64_t vectorBytes = 0;     ///< Unless 0, instead of this machine's.
  int64_t vectorRegisters = 0; ///< The same.
};

/// A kernel compiled for this machine, linked, and opened in this process.
class CompiledKernel {
public:
  CompiledKernel(const ShapeOptions &options, bool isGradient);
  ~CompiledKernel();

  /// Runs all stages, each on `workers` threads that share out the items.
  void run(std::vector<void *> buffers, int64_t workers);
  /// Runs one worker's share of one stage on the calling thread.
  void runShare(size_t stage, void *const *buffers, int64_t worker,
                int64_t workers) const;

  KernelCode code;
  double compileMilliseconds = 0;
  size_t objectBytes = 0;

private:
  using Entry = void (*)(void *const *, int64_t, int64_t, int64_t);
  std::vector<Entry> entries;
  void *library = nullptr;
  std::string path;
};

} // namespace kiln::cpu::test

#endif // KILN_TEST_COMPILER_BACKEND_CPU_ATTENTION_COMPILEDKERNEL_H
