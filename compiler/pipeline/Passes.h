// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PIPELINE_PASSES_H
#define KILN_COMPILER_PIPELINE_PASSES_H

#include "compiler/backend/Backend.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace kiln {

// Passes that ask backends. Those given must outlive the pass; without any, as
// in kiln-opt, a pass asks those of a CPU device.
std::unique_ptr<mlir::Pass>
createDecomposeComposites(const Backends *backends = nullptr);
std::unique_ptr<mlir::Pass>
createFuseKernels(const Backends *backends = nullptr);
std::unique_ptr<mlir::Pass>
createPlanKernels(const Backends *backends = nullptr);
std::unique_ptr<mlir::Pass> createPlanMemory(const Backends *backends = nullptr,
                                             bool hasRedZones = false);
/// `store` and `code` may be null.
std::unique_ptr<mlir::Pass>
createGenerateCode(const Backends *backends = nullptr,
                   CodeStore *store = nullptr, ProgramCode *code = nullptr);

#define GEN_PASS_DECL
#include "compiler/pipeline/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "compiler/pipeline/Passes.h.inc"

} // namespace kiln

#endif // KILN_COMPILER_PIPELINE_PASSES_H
