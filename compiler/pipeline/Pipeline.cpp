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
  if (optimizer.betas.size() == 2) {
    options.beta1 = optimizer.betas[0];
    options.beta2 = optimizer.betas[1];
  }
  options.epsilon = optimizer.epsilon;
  options.weightDecay = optimizer.weightDecay;
  options.momentum = optimizer.momentum;
  options.clipNorm = training.clipNorm;
  return options;
}

// Of the replica that has most.
static int64_t countMicroBatches(const Config &config, const Plan &plan) {
  int64_t most = 1;
  for (int64_t share : plan.shares(config))
    most = std::max(most, plan.accumulation(share));
  return most;
}

// The option of the micro-batch: 0 is the replica's whole share.
static ScheduleStepOptions getScheduleOptions(const Config &config,
                                              const Plan &plan) {
  ScheduleStepOptions schedule;
  schedule.microBatch = plan.microBatch;
  schedule.microBatches = countMicroBatches(config, plan);
  return schedule;
}

// Blocks have no branches that could be simplified. One sweep follows each
// change to its operands and readers; a second would only confirm it.
static std::unique_ptr<Pass> createCanonicalizer() {
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  config.setMaxIterations(1);
  return createCanonicalizerPass(config);
}

static ApplyPrecisionOptions getPrecisionOptions(const Config &config,
                                                 const Plan &plan) {
  const PrecisionPolicy &policy = config.training.precision;
  ApplyPrecisionOptions options;
  if (policy.isAll(FloatFormat::F64)) {
    options.all = wordOf(FloatFormat::F64);
    return options;
  }
  options.parameters = wordOf(policy.parameters);
  options.compute = wordOf(policy.compute);
  options.activations = wordOf(policy.activations);
  options.gradients =
      wordOf(policy.gradientsOf(countMicroBatches(config, plan)));
  options.messages = wordOf(policy.messages);
  options.master = policy.roundsStochastically ? "none" : wordOf(policy.master);
  options.moments = wordOf(policy.moments);
  if (policy.scalesLoss()) {
    options.lossScale = config.training.lossScale.initial;
    options.growthSteps = config.training.lossScale.growthSteps;
  }
  return options;
}

namespace {
/// The change that a test makes to the step.
struct ChangeStepPass : PassWrapper<ChangeStepPass, OperationPass<ModuleOp>> {
  explicit ChangeStepPass(ChangeStep change) : change(std::move(change)) {}
  StringRef getName() const override { return "change the step"; }
  void runOnOperation() override { change(getOperation()); }

  ChangeStep change;
};
} // namespace

void buildStepPipeline(OpPassManager &manager, const Config &config,
                       const Plan &plan, const PipelineTests &tests) {
  // kiln on a symbolic batch: the loss, its gradients, the step.
  const PrecisionPolicy &precision = config.training.precision;
  if (!precision.isAll(FloatFormat::F32))
    manager.addPass(createApplyPrecision(getPrecisionOptions(config, plan)));
  DifferentiateOptions differentiate;
  differentiate.recompute = wordOf(plan.recompute);
  manager.addPass(createDifferentiate(differentiate));
  manager.addPass(createBuildStep(getStepOptions(config.training)));
  manager.addPass(createCanonicalizer());
  manager.addPass(createCSEPass());
  manager.addPass(createVerifyContract({"step"}));
  // One device's shard of it.
  ShardOptions shard;
  shard.data = plan.mesh.data;
  shard.tensor = plan.mesh.tensor;
  shard.zero = plan.zero;
  shard.sequenceParallel = plan.isSequenceParallel;
  manager.addPass(createShard(shard));
  manager.addPass(createCanonicalizer());
  MergeCollectivesOptions buckets;
  if (config.devices.bucketBytes)
    buckets.bucketBytes = config.devices.bucketBytes;
  manager.addPass(createMergeCollectives(buckets));
  if (plan.offload == Offload::Optimizer)
    manager.addPass(createOffloadOptimizer());
  manager.addPass(createVerifyContract({"shard"}));
  if (tests.changeStep)
    manager.addPass(std::make_unique<ChangeStepPass>(tests.changeStep));
  SplitImagesOptions split;
  split.shares = llvm::to_vector(plan.shares(config));
  manager.addPass(createSplitImages(split));
}

void buildImagePipeline(OpPassManager &manager, const Config &config,
                        const Plan &plan, const Backends &backends,
                        const PipelineTests &tests) {
  // The batch has a size from here on.
  manager.addPass(createScheduleStep(getScheduleOptions(config, plan)));
  manager.addPass(createDecomposeComposites(&backends));
  manager.addPass(createCanonicalizer());
  // No CSE from here on: gradient rules write forward values again so that they
  // are computed where they are read.
  manager.addPass(createFuseKernels(&backends));
  manager.addPass(createVerifyContract({"fuse"}));
  manager.addPass(createLowerToExec());
  manager.addPass(createVerifyContract({"lower"}));
  manager.addPass(createPlanKernels(&backends));
  manager.addPass(createPlanMemory(&backends, tests.hasRedZones));
  manager.addPass(createVerifyContract({"plan"}));
}

void buildPlanPipeline(OpPassManager &manager, const Config &config,
                       const Plan &plan, const Backends &backends,
                       const PipelineTests &tests) {
  buildStepPipeline(manager, config, plan, tests);
  buildImagePipeline(manager.nest<ModuleOp>(), config, plan, backends, tests);
}

void buildCodePipeline(OpPassManager &manager, const Backends &backends,
                       CodeStore *store, ProgramCode &code) {
  manager.addPass(createGenerateCode(&backends, store, &code));
}

SmallVector<ModuleOp> getImages(ModuleOp module) {
  return SmallVector<ModuleOp>(module.getOps<ModuleOp>());
}

void registerDialects(DialectRegistry &registry) {
  registry.insert<KilnDialect, exec::ExecDialect, func::FuncDialect,
                  arith::ArithDialect, math::MathDialect, memref::MemRefDialect,
                  scf::SCFDialect, vector::VectorDialect, LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

} // namespace kiln
