// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H
#define KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H

#include "compiler/backend/cpu/CpuTarget.h"
#include "compiler/config/Config.h"
#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace kiln {

/// Writes a planned exec module, its kernels and the config as one .kiln file.
Status writeArtifact(mlir::ModuleOp module, const std::string &kernels,
                     const Config &config, const cpu::CpuTarget &target,
                     const std::string &path);

} // namespace kiln

#endif // KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H
