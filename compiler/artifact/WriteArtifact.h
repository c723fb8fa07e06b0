// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H
#define KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H

#include "compiler/backend/Backend.h"
#include "compiler/config/Config.h"
#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace kiln {

/// Writes planned images, their code, the config and its resolved plan as one
/// .kiln file, in place; messages call it `name`.
Status writeArtifact(llvm::ArrayRef<mlir::ModuleOp> images,
                     const ProgramCode &code, const Config &config,
                     const Plan &plan, const Backends &backends,
                     const std::string &path, const std::string &name);

} // namespace kiln

#endif // KILN_COMPILER_ARTIFACT_WRITEARTIFACT_H
