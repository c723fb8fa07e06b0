// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PIPELINE_PIPELINE_H
#define KILN_COMPILER_PIPELINE_PIPELINE_H

#include "compiler/config/Config.h"
#include "compiler/pipeline/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace kiln {

/// From a model's loss to commands on buffers without places: all that comes
/// before code generation.
void buildPipeline(mlir::OpPassManager &manager, const Config &config,
                   bool isReference);

/// Gives buffers their places. After code generation, which knows how much
/// scratch a kernel needs.
void buildMemoryPipeline(mlir::OpPassManager &manager);

/// Dialects that a module may contain in any stage.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace kiln

#endif // KILN_COMPILER_PIPELINE_PIPELINE_H
