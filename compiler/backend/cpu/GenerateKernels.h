// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GENERATEKERNELS_H
#define KILN_COMPILER_BACKEND_CPU_GENERATEKERNELS_H

#include "compiler/backend/cpu/CpuTarget.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace kiln::cpu {

struct GenerateOptions {
  CpuTarget target;
  int64_t workers = 1;      ///< Of a device; scratch is planned for them.
  bool isReference = false; ///< Plain loops and libm, one op at a time.
};

/// Generates code for every exec.kernel of the modules, once for those of the
/// same name, records its stages and scratch, gives each launch a scratch
/// buffer where needed, and returns a shared object with all stages.
mlir::FailureOr<std::string>
generateKernels(llvm::ArrayRef<mlir::ModuleOp> modules,
                const GenerateOptions &options);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GENERATEKERNELS_H
