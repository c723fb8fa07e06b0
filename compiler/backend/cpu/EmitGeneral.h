// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_EMITGENERAL_H
#define KILN_COMPILER_BACKEND_CPU_EMITGENERAL_H

#include "compiler/backend/cpu/ObjectCode.h"

namespace kiln::cpu {

/// Writes a kernel of one op as plain loops over scalars: what runs where no
/// faster form applies, and what the reference is made of. `body` holds the op
/// and its yield.
mlir::FailureOr<KernelCode>
emitGeneral(mlir::ModuleOp module, llvm::StringRef symbol, mlir::Block &body);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_EMITGENERAL_H
