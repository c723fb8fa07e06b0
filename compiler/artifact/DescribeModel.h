// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_ARTIFACT_DESCRIBEMODEL_H
#define KILN_COMPILER_ARTIFACT_DESCRIBEMODEL_H

#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinOps.h"

#include <flatbuffers/flatbuffers.h>

namespace kiln {

/// A frontend's module as the index of an artifact that has variables, the
/// inputs of `train` and public names, and nothing else: what files of data and
/// weights must fit.
flatbuffers::DetachedBuffer describeModel(mlir::ModuleOp module,
                                          const Config &config);

} // namespace kiln

#endif // KILN_COMPILER_ARTIFACT_DESCRIBEMODEL_H
