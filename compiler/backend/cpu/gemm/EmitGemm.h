// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_EMITGEMM_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_EMITGEMM_H

#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// C[m,n] = or += the sum over k of A[m,k] B[k,n]. Strides count elements.
struct GemmShape {
  int64_t m, n, k;
  int64_t aRowStride, aColumnStride; ///< One of them is 1.
  int64_t bRowStride, bColumnStride; ///< One of them is 1.
  int64_t cRowStride;                ///< Columns of C are contiguous.
  mlir::Type elementType;            ///< f32 or f64.
  bool accumulate = false;           ///< C += instead of C =.
};

/// Rewrites finished values of C before they are stored. `values` is a vector
/// of the elements of C at [row, column], [row, column + 1], ...; its size is
/// that of a register or, at the right edge of C, what is left. `extra` are the
/// stage's arguments for the additional buffers. With `accumulate`, the values
/// include what C held.
using GemmEpilogue = llvm::function_ref<mlir::Value(
    mlir::OpBuilder &, mlir::Location, mlir::Value values, mlir::Value row,
    mlir::Value column, mlir::ValueRange extra)>;

/// Writes the product as one stage with buffers A, B, C (flat memrefs), the
/// `extra` ones and scratch. The order of additions is fixed by the shape and
/// the target.
KernelCode emitGemm(mlir::ModuleOp module, llvm::StringRef symbol,
                    const GemmShape &shape, const CpuTarget &target,
                    mlir::TypeRange extra = {},
                    GemmEpilogue epilogue = nullptr);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_EMITGEMM_H
