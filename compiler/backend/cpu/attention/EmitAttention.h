// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTION_H
#define KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTION_H

#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// Self-attention over queries, keys and values that lie side by side, as the
/// projection that makes all three leaves them.
struct AttentionShape {
  int64_t batch, sequence, heads, headWidth;
  bool isCausal;          ///< Position i sees positions 0 to i.
  bool hasLengths;        ///< A sample sees its first length positions.
  double scale;           ///< Multiplies the scores before the softmax.
  mlir::Type elementType; ///< f32 or f64.
};

/// Buffers: qkv[batch, sequence, 3, heads, width], if there are lengths those
/// [batch] (i32) -> out[batch, sequence, heads, width], logSumExp[batch, heads,
/// sequence], then scratch. `logSumExp`
/// is that of the scaled scores of a row; the gradient recomputes the
/// probabilities from it. At most one block of query rows of scores exists at
/// a time, in scratch. Items are (batch, head) pairs, or groups of queries of
/// a pair where there are few pairs.
KernelCode emitAttention(mlir::ModuleOp module, llvm::StringRef symbol,
                         const AttentionShape &shape, const CpuTarget &target);

/// Buffers: qkv, out, logSumExp, dOut, lengths or not -> dqkv[batch, sequence,
/// 3, heads, width], then scratch. One stage over (batch, head) pairs; where
/// there are too few pairs to share out, two stages, one over groups of queries
/// and one over groups of keys, which compute the scores twice.
KernelCode emitAttentionGradient(mlir::ModuleOp module, llvm::StringRef symbol,
                                 const AttentionShape &shape,
                                 const CpuTarget &target);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTION_H
