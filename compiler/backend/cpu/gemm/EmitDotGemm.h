// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_EMITDOTGEMM_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_EMITDOTGEMM_H

#include "compiler/backend/cpu/gemm/DotUnit.h"
#include "compiler/backend/cpu/gemm/EmitGemm.h"

namespace kiln::cpu {

/// Products are added in the order of k, whatever the blocks.
struct DotGemmTuning {
  int64_t blockDepth = 1024;
  int64_t groupColumns = 256; ///< Of B that are packed at once.
  int64_t itemRows = 0;       ///< 0: chosen by estimated cost.
  int64_t itemColumns = 0;    ///< The same.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("block_depth", self.blockDepth);
    field("group_columns", self.groupColumns);
    field("item_rows", self.itemRows);
    field("item_columns", self.itemColumns);
  }
};

/// The same as planGemm and emitGemm, for a target with a DotUnit for the
/// operands.
StagePlan planDotGemm(llvm::StringRef symbol, const GemmShape &shape,
                      const CpuTarget &target, const DotGemmTuning &tuning);
StagePlan emitDotGemm(mlir::ModuleOp module, llvm::StringRef symbol,
                      const GemmShape &shape, const CpuTarget &target,
                      const DotGemmTuning &tuning, mlir::TypeRange extra = {},
                      GemmEpilogue epilogue = nullptr);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_EMITDOTGEMM_H
