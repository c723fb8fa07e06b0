// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_EMITGEMM_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_EMITGEMM_H

#include "compiler/backend/KernelForm.h"
#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// C[m,n] = or += the sum over k of A[m,k] B[k,n]. Strides count elements.
struct GemmShape {
  int64_t m, n, k;
  int64_t aRowStride, aColumnStride; ///< One of them is 1.
  int64_t bRowStride, bColumnStride; ///< One of them is 1.
  int64_t cRowStride;                ///< Columns of C are contiguous.
  ElementTypes types;
  bool accumulate = false; ///< C += instead of C =.
};

/// The types of the buffers A, B and C.
llvm::SmallVector<mlir::Type> getOperandBuffers(const GemmShape &shape);

/// Neither tiles nor items change the order of additions, which is that of k
/// within blocks of a fixed depth.
struct GemmTuning {
  int64_t tileRows, tileVectors;
  int64_t rightCachePercent = 50; ///< Of the second cache, for packed B.
  int64_t leftCachePercent = 25;  ///< The same for the rows of A.
  int64_t itemRows = 0;           ///< 0: chosen by estimated cost.
  int64_t itemColumns = 0;        ///< The same.

  explicit GemmTuning(const CpuTarget &target);
  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("tile_rows", self.tileRows);
    field("tile_vectors", self.tileVectors);
    field("right_cache_percent", self.rightCachePercent);
    field("left_cache_percent", self.leftCachePercent);
    field("item_rows", self.itemRows);
    field("item_columns", self.itemColumns);
  }
};

/// Rewrites finished values of C before they are stored. `values` is a vector
/// of the elements of C at [row, column], [row, column + 1], ...; it has the
/// size of a register or, at the right edge of C, of the rest. `extra` are the
/// stage's arguments for the additional buffers. With `accumulate`, the values
/// include the previous C.
using GemmEpilogue = llvm::function_ref<mlir::Value(
    mlir::OpBuilder &, mlir::Location, mlir::Value values, mlir::Value row,
    mlir::Value column, mlir::ValueRange extra)>;

StagePlan planGemm(llvm::StringRef symbol, const GemmShape &shape,
                   const CpuTarget &target, const GemmTuning &tuning);

/// Writes the product as one stage with buffers A, B, C (flat memrefs), the
/// `extra` ones and scratch. The order of additions is fixed by the shape and
/// the target.
StagePlan emitGemm(mlir::ModuleOp module, llvm::StringRef symbol,
                   const GemmShape &shape, const CpuTarget &target,
                   const GemmTuning &tuning, mlir::TypeRange extra = {},
                   GemmEpilogue epilogue = nullptr);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_EMITGEMM_H
