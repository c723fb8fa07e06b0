// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PIPELINE_PIPELINE_H
#define KILN_COMPILER_PIPELINE_PIPELINE_H

#include "compiler/config/Config.h"
#include "compiler/pipeline/Passes.h"
#include "runtime/Status.h"

#include "mlir/Pass/PassManager.h"

#include <functional>

namespace kiln {

/// Sees the step of one device before it becomes images.
using ChangeStep = std::function<void(mlir::ModuleOp)>;

/// Faults that tests inject: a wrong step must be noticed, and so must a kernel
/// that writes past its buffers.
struct PipelineTests {
  ChangeStep changeStep;
  bool hasRedZones = false;
};

/// From a model's loss to the step of one device on a symbolic batch, as an
/// image for each share of the batch.
void buildStepPipeline(mlir::OpPassManager &manager, const Config &config,
                       const Plan &plan, const PipelineTests &tests = {});

/// From an image to commands on buffers that have their places, of kernels that
/// are planned and not yet generated.
void buildImagePipeline(mlir::OpPassManager &manager, const Config &config,
                        const Plan &plan, const Backends &backends,
                        const PipelineTests &tests = {});

/// Both: all that is to be known of a plan, and no code.
void buildPlanPipeline(mlir::OpPassManager &manager, const Config &config,
                       const Plan &plan, const Backends &backends,
                       const PipelineTests &tests = {});

/// From planned images to their code.
void buildCodePipeline(mlir::OpPassManager &manager, const Backends &backends,
                       CodeStore *store, ProgramCode &code);

/// The images of a module that has gone through the plan pipeline.
llvm::SmallVector<mlir::ModuleOp> getImages(mlir::ModuleOp module);

/// Writes the module to `folder` as `01-model.mlir`, and again after each pass
/// of Kiln's own and what cleans up behind it, as `NN-pass.mlir` in the order
/// of the passes; of several images the first. The first failure is put into
/// `status`, which must outlive the manager.
void dumpAfterPasses(mlir::PassManager &manager, mlir::ModuleOp module,
                     const std::string &folder, Status &status);

/// Dialects that a module may contain after any pass.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace kiln

#endif // KILN_COMPILER_PIPELINE_PIPELINE_H
