// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PIPELINE_PIPELINE_H
#define KILN_COMPILER_PIPELINE_PIPELINE_H

#include "compiler/config/Config.h"
#include "compiler/pipeline/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace kiln {

/// From a model's loss to the step of one device, on a symbolic batch.
void buildStepPipeline(mlir::OpPassManager &manager, const Config &config);

/// From the step of a device whose replica takes `share` samples of the global
/// batch to commands on buffers without places: all that comes before code
/// generation.
void buildImagePipeline(mlir::OpPassManager &manager, const Config &config,
                        int64_t share, bool isReference);

/// Gives buffers their places. After code generation, which knows how much
/// scratch a kernel needs.
void buildMemoryPipeline(mlir::OpPassManager &manager, bool hasRedZones);

/// Dialects that a module may contain in any stage.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace kiln

#endif // KILN_COMPILER_PIPELINE_PIPELINE_H
