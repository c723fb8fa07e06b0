// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FRONTEND_IMPORTMODEL_H
#define KILN_COMPILER_FRONTEND_IMPORTMODEL_H

#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace kiln {

/// The model that a config names, as a function on a symbolic batch: built by
/// its family in models/, or read from a file of kiln text. Empty after an
/// error, which is reported to the context's diagnostics.
mlir::OwningOpRef<mlir::ModuleOp> importModel(const Config &config,
                                              mlir::MLIRContext &context);

} // namespace kiln

#endif // KILN_COMPILER_FRONTEND_IMPORTMODEL_H
