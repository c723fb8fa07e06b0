// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H
#define KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H

#include "compiler/backend/cpu/CpuTarget.h"
#include "compiler/config/Config.h"
#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

#include <string>

namespace kiln {

/// One planned exec module for every share of the batch that a replica has.
using Images = llvm::MapVector<int64_t, mlir::ModuleOp>;

/// Writes planned exec modules, their kernels, the config and the plan that it
/// became as one .kiln file.
Status writeArtifact(const Images &images, const std::string &kernels,
                     const Config &config, const Plan &plan,
                     const cpu::CpuTarget &target, const std::string &path);

} // namespace kiln

#endif // KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H
