// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTION_H
#define KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTION_H

#include "compiler/backend/KernelForm.h"
#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// Rows of scores are complete, so neither how many exist at a time nor how
/// pairs are divided changes the order of additions.
struct AttentionTuning {
  int64_t blockRows = 48; ///< Queries whose scores exist at a time, at most.
  int64_t cachePercent = 100; ///< Of the second cache, for their scores.
  /// With fewer items than this, an imbalance of one item costs time.
  int64_t enoughItems = 16;

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("block_rows", self.blockRows);
    field("cache_percent", self.cachePercent);
    field("enough_items", self.enoughItems);
  }
};

/// The block of queries fixes the order of summation of the keys' gradients.
struct AttentionGradientTuning {
  int64_t enoughItems = 16;
  /// Dividing a pair computes its scores twice, 7 products instead of 5. That
  /// is worth it only where the pairs alone leave most workers without any.
  int64_t fewPairs = 4;

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("enough_items", self.enoughItems);
    field("few_pairs", self.fewPairs);
  }
};

StagePlan planAttention(llvm::StringRef symbol, const AttentionShape &shape,
                        const CpuTarget &target, const AttentionTuning &tuning);
StagePlan planAttentionGradient(llvm::StringRef symbol,
                                const AttentionShape &shape,
                                const CpuTarget &target,
                                const AttentionGradientTuning &tuning);

/// Buffers: qkv[batch, sequence, 3, heads, width], lengths[batch] (i32) if
/// there are any -> out[batch, sequence, heads, width], logSumExp[batch, heads,
/// sequence], then scratch. `logSumExp` is that of the scaled scores of a row;
/// the gradient recomputes the probabilities from it. At most one block of
/// query rows of scores exists at a time, in scratch. Items are (batch, head)
/// pairs, or groups of queries of a pair where there are few pairs.
StagePlan emitAttention(mlir::ModuleOp module, llvm::StringRef symbol,
                        const AttentionShape &shape, const CpuTarget &target,
                        const AttentionTuning &tuning = {});

/// Buffers: qkv, out, logSumExp, dOut, lengths if any -> dqkv[batch, sequence,
/// 3, heads, width], then scratch. One stage over (batch, head) pairs; where
/// there are too few pairs to share out, two stages, one over groups of queries
/// and one over groups of keys, which compute the scores twice.
StagePlan emitAttentionGradient(mlir::ModuleOp module, llvm::StringRef symbol,
                                const AttentionShape &shape,
                                const CpuTarget &target,
                                const AttentionGradientTuning &tuning = {});

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTION_H
