// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_EMITHEAD_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_EMITHEAD_H

#include "compiler/backend/KernelForm.h"
#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// Chunks of tokens, blocks of the vocabulary and slices of blocks fix the
/// order of summation; only how much of dW is computed at a time is free.
struct HeadTuning {
  int64_t gradientCachePercent = 50; ///< Of the second cache.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("gradient_cache_percent", self.gradientCachePercent);
  }
};

StagePlan planHead(llvm::StringRef symbol, const HeadShape &shape,
                   const CpuTarget &target, const HeadTuning &tuning);

/// Writes stages with the buffers X[tokens, width], W[vocabulary, width],
/// labels[tokens] (i32), loss[1], count[1], then with gradients dX and dW, and
/// scratch; all flat, row-major and overwritten. At most a chunk of logits
/// exists at a time. The order of additions is fixed by the shape and the
/// target.
StagePlan emitHead(mlir::ModuleOp module, llvm::StringRef symbol,
                   const HeadShape &shape, const CpuTarget &target,
                   const HeadTuning &tuning = {});

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_EMITHEAD_H
