// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ROWS_EMITFUSED_H
#define KILN_COMPILER_BACKEND_CPU_ROWS_EMITFUSED_H

#include "compiler/backend/cpu/ObjectCode.h"
#include "compiler/backend/cpu/rows/FusedPlan.h"

namespace kiln::cpu {

StagePlan planFused(llvm::StringRef symbol, mlir::Block &body,
                    const KernelDomain &domain, const CpuTarget &target,
                    const FusedTuning &tuning);

/// Writes a kernel of elementwise, broadcast and reduction ops: a loop over
/// rows, with as many vector passes over each row as reductions along it
/// require. Sums over rows go through partial sums of fixed chunks of rows,
/// which a second stage adds in order.
StagePlan emitFused(mlir::ModuleOp module, llvm::StringRef symbol,
                    mlir::Block &body, const KernelDomain &domain,
                    const CpuTarget &target, const FusedTuning &tuning);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ROWS_EMITFUSED_H
