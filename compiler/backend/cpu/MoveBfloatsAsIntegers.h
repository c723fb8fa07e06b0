// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_MOVEBFLOATSASINTEGERS_H
#define KILN_COMPILER_BACKEND_CPU_MOVEBFLOATSASINTEGERS_H

#include "mlir/IR/BuiltinOps.h"

namespace kiln::cpu {

/// Makes values of bf16 integers, in a module of the LLVM dialect that only
/// moves them: LLVM 22 selects no instruction for some moves of bf16 on
/// processors with AVX512-BF16, such as the store of 33 elements.
mlir::LogicalResult moveBfloatsAsIntegers(mlir::ModuleOp module);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_MOVEBFLOATSASINTEGERS_H
