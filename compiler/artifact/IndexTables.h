// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_ARTIFACT_INDEXTABLES_H
#define KILN_COMPILER_ARTIFACT_INDEXTABLES_H

#include "compiler/config/Config.h"
#include "runtime/artifact/Artifact_generated.h"

#include "mlir/IR/Types.h"

#include <memory>
#include <optional>

namespace kiln {

/// Nothing for a type that no artifact has.
std::optional<artifact::ElementType> findElementType(mlir::Type type);

/// How the variables of a model are called in public checkpoints.
std::unique_ptr<artifact::PublicNamesT>
describePublicNames(const ModelConfig &model);

} // namespace kiln

#endif // KILN_COMPILER_ARTIFACT_INDEXTABLES_H
