// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of contents of the compiler.
#include "compiler/pipeline/Pipeline.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace kiln {

static BuildStepOptions getStepOptions(const TrainingConfig &training) {
  const OptimizerConfig &optimizer = training.optimizer;
  BuildStepOptions options;
  options.optimizer = wordOf(optimizer.kind);
  options.learningRate = optimizer.learningRate;
  if (optimizer.betas.size() == 2) {
    options.beta1 = optimizer.betas[0];
    options.beta2 = optimizer.betas[1];
  }
  options.epsilon = optimizer.epsilon;
  options.weightDecay = optimizer.weightDecay;
  options.momentum = optimizer.momentum;
  options.schedule = wordOf(training.schedule.kind);
  options.warmup = training.schedule.warmup;
  options.steps = training.schedule.steps;
  options.minimumRate = training.schedule.minimum;
  options.clipNorm = training.clipNorm;
  return options;
}

void buildStepPipeline(OpPassManager &manager, const Config &config,
                       const Plan &plan) {
  // kiln on a symbolic batch: the loss, its gradients, the step.
  if (config.training.precision == Precision::BF16)
    manager.addPass(createRoundActivations());
  DifferentiateOptions differentiate;
  differentiate.recompute = wordOf(plan.recompute);
  manager.addPass(createDifferentiate(differentiate));
  manager.addPass(createBuildStep(getStepOptions(config.training)));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  // One device's part of it.
  ShardOptions shard;
  shard.data = plan.mesh.data;
  shard.tensor = plan.mesh.tensor;
  shard.zero = plan.zero;
  shard.sequenceParallel = plan.isSequenceParallel;
  manager.addPass(createShard(shard));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createMergeCollectives());
  if (plan.offload == Offload::Optimizer)
    manager.addPass(createOffloadOptimizer());
}

void buildImagePipeline(OpPassManager &manager, const Config &config,
                        const Plan &plan, int64_t share, bool isReference) {
  // The batch has a size from here on.
  ScheduleStepOptions schedule;
  schedule.batch = share;
  for (int64_t other : plan.shares(config))
    schedule.microBatches =
        std::max(schedule.microBatches, plan.accumulation(other));
  schedule.microBatch = plan.microBatch;
  manager.addPass(createScheduleStep(schedule));
  DecomposeCompositesOptions decompose;
  decompose.jointForms = !isReference;
  manager.addPass(createDecomposeComposites(decompose));
  manager.addPass(createCanonicalizerPass());
  // No CSE from here on: gradient rules write forward values again so that they
  // are made where they are read.
  FuseKernelsOptions fuse;
  fuse.fuse = !isReference;
  manager.addPass(createFuseKernels(fuse));
  manager.addPass(createLowerToExec());
}

void buildMemoryPipeline(OpPassManager &manager) {
  manager.addPass(createPlanMemory());
}

void registerDialects(DialectRegistry &registry) {
  registry.insert<KilnDialect, exec::ExecDialect, func::FuncDialect,
                  arith::ArithDialect, math::MathDialect, memref::MemRefDialect,
                  scf::SCFDialect, vector::VectorDialect, LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

} // namespace kiln
