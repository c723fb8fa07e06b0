// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_EMITHEAD_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_EMITHEAD_H

#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// The last layer of a language model with its loss:
///   loss = sum over t of logsumexp(X[t] W^T) - (X[t] W^T)[label[t]]
/// the number of tokens whose label has the greatest logit, and the gradients
/// of the loss with respect to X and W, for d(loss) = 1. A token whose label is
/// not in [0, vocabulary) counts for nothing.
struct HeadShape {
  int64_t tokens, width, vocabulary;
  mlir::Type elementType; ///< f32 or f64.
  bool gradients;         ///< Otherwise only loss and count.
};

/// Writes stages with the buffers X[tokens, width], W[vocabulary, width],
/// labels[tokens] (i32), loss[1], count[1], then with gradients dX and dW, and
/// scratch; all flat, row-major and overwritten. At most a chunk of logits
/// exists at a time. The order of additions is fixed by the shape and the
/// target.
KernelCode emitHead(mlir::ModuleOp module, llvm::StringRef symbol,
                    const HeadShape &shape, const CpuTarget &target);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_EMITHEAD_H
