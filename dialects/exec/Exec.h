// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_EXEC_EXEC_H
#define KILN_DIALECTS_EXEC_EXEC_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

namespace kiln::exec {
/// Memory of a buffer; kernels run in the memory space of their buffers.
enum class MemorySpace { device, host };

/// Buffers of every space begin at multiples of this; backends may want more.
inline constexpr int64_t kLeastAlignment = 64;

/// Whether a type can lie in a buffer: a tensor of numbers with a static shape.
bool isStatic(mlir::Type type);
} // namespace kiln::exec

#include "dialects/exec/ExecDialect.h.inc"
#include "dialects/exec/ExecEnums.h.inc"
#define GET_OP_CLASSES
#include "dialects/exec/ExecOps.h.inc"

#endif // KILN_DIALECTS_EXEC_EXEC_H
