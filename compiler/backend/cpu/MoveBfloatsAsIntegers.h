// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_MOVEBFLOATSASINTEGERS_H
#define KILN_COMPILER_BACKEND_CPU_MOVEBFLOATSASINTEGERS_H

#include "mlir/IR/BuiltinOps.h"

namespace kiln::cpu {

/// Whether kernels that are not lowered yet convert no bf16 and multiply none.
bool onlyMovesBfloats(mlir::ModuleOp module);

/// Makes values of bf16 integers, in a module of the LLVM dialect that only
/// moves them. LLVM 22 selects no instruction for some moves of bf16 with
/// AVX512-BF16, such as the store of 33 elements, and calls a library without.
/// Where bf16 are converted these are integers already, and with integers
/// everywhere LLVM was seen to miscompile vectors of one element.
mlir::LogicalResult moveBfloatsAsIntegers(mlir::ModuleOp module);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_MOVEBFLOATSASINTEGERS_H
