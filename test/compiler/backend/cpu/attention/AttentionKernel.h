// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_COMPILER_BACKEND_CPU_ATTENTION_ATTENTIONKERNEL_H
#define KILN_TEST_COMPILER_BACKEND_CPU_ATTENTION_ATTENTIONKERNEL_H

#include "test/compiler/backend/cpu/KernelRunner.h"

namespace kiln::cpu::test {

struct ShapeOptions {
  int64_t batch, sequence, heads, headWidth;
  bool isCausal;
  double scale;
  bool isDouble;
  int64_t vectorBytes = 0;     ///< Unless 0, instead of this machine's.
  int64_t vectorRegisters = 0; ///< The same.
};

/// Compiles attention or its gradient for this machine.
LoadedKernel loadAttention(const ShapeOptions &options, bool isGradient);

} // namespace kiln::cpu::test

#endif // KILN_TEST_COMPILER_BACKEND_CPU_ATTENTION_ATTENTIONKERNEL_H
