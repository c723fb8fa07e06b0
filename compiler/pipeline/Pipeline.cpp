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
  options.optimizer = optimizer.kind == OptimizerKind::Adam    ? "adam"
                      : optimizer.kind == OptimizerKind::AdamW ? "adamw"
                                                               : "sgd";
  options.learningRate = optimizer.learningRate;
  if (optimizer.betas.size() == 2) {
    options.beta1 = optimizer.betas[0];
    options.beta2 = optimizer.betas[1];
  }
  options.epsilon = optimizer.epsilon;
  options.weightDecay = optimizer.weightDecay;
  options.momentum = optimizer.momentum;
  options.schedule =
      training.schedule.kind == ScheduleKind::Cosine ? "cosine" : "constant";
  options.warmup = training.schedule.warmup;
  options.steps = training.schedule.steps;
  options.minimumRate = training.schedule.minimum;
  options.clipNorm = training.clipNorm;
  return options;
}

static const char *getName(Recompute recompute) {
  switch (recompute) {
  case Recompute::None:
    return "none";
  case Recompute::Attention:
    return "attention";
  case Recompute::Full:
    return "full";
  }
  llvm_unreachable("a choice of the config");
}

void buildStepPipeline(OpPassManager &manager, const Config &config) {
  // kiln on a symbolic batch: the loss, its gradients, the step.
  if (config.training.precision == Precision::BF16)
    manager.addPass(createRoundActivations());
  DifferentiateOptions differentiate;
  differentiate.recompute = getName(config.devices.recompute);
  manager.addPass(createDifferentiate(differentiate));
  manager.addPass(createBuildStep(getStepOptions(config.training)));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  // One device's part of it.
  ShardOptions shard;
  shard.data = config.devices.mesh.data;
  shard.tensor = config.devices.mesh.tensor;
  shard.zero = config.devices.zero;
  shard.sequenceParallel = config.devices.isSequenceParallel;
  manager.addPass(createShard(shard));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createMergeCollectives());
  if (config.devices.offload == Offload::Optimizer)
    manager.addPass(createOffloadOptimizer());
}

void buildImagePipeline(OpPassManager &manager, const Config &config,
                        int64_t share, bool isReference) {
  // The batch has a size from here on.
  ScheduleStepOptions schedule;
  schedule.batch = share;
  for (int64_t other : config.shares())
    schedule.microBatches =
        std::max(schedule.microBatches, config.training.accumulation(other));
  schedule.microBatch = config.training.microBatch;
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

void buildMemoryPipeline(OpPassManager &manager, bool hasRedZones) {
  PlanMemoryOptions options;
  options.redZones = hasRedZones;
  manager.addPass(createPlanMemory(options));
}

void registerDialects(DialectRegistry &registry) {
  registry.insert<KilnDialect, exec::ExecDialect, func::FuncDialect,
                  arith::ArithDialect, math::MathDialect, memref::MemRefDialect,
                  scf::SCFDialect, vector::VectorDialect, LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

} // namespace kiln
