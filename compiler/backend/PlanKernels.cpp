// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Asks the backend of each kernel's memory space how the kernel will run, and
// gives launches a buffer for the scratch that it needs. The memory plan needs
// no more than this, so it is made before any code exists.
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Origin.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_PLANKERNELS
#include "compiler/pipeline/Passes.h.inc"

void setStages(exec::KernelOp kernel, ArrayRef<KernelStage> stages) {
  SmallVector<StringRef> symbols;
  SmallVector<int64_t> items, rounds;
  for (const KernelStage &stage : stages) {
    symbols.push_back(stage.symbol);
    items.push_back(stage.items);
    rounds.push_back(stage.rounds);
  }
  kernel.setStagesAttr(Builder(kernel.getContext()).getStrArrayAttr(symbols));
  kernel.setItems(items);
  if (llvm::any_of(rounds, [](int64_t count) { return count != 1; }))
    kernel.setRounds(rounds);
}

std::vector<KernelStage> getStages(exec::KernelOp kernel) {
  std::vector<KernelStage> stages;
  for (auto [symbol, items] :
       llvm::zip_equal(kernel.getStagesAttr(), *kernel.getItems()))
    stages.push_back({cast<StringAttr>(symbol).str(), items});
  if (auto rounds = kernel.getRounds())
    for (auto [stage, count] : llvm::zip_equal(stages, *rounds))
      stage.rounds = count;
  return stages;
}

void setPlan(exec::KernelOp kernel, const KernelPlan &plan) {
  setStages(kernel, plan.stages);
  kernel.setFamily(plan.family);
  kernel.setTuningAttr(toAttribute(kernel.getContext(), plan.tuning));
  kernel.setScratchBytes(plan.scratchBytes);
}

static void addScratch(exec::LaunchOp launch, exec::KernelOp kernel,
                       SymbolTable &symbols, unsigned number) {
  if (kernel.getScratchBytes() == 0)
    return;
  OpBuilder builder(launch);
  SmallVector<Attribute> names(launch.getBuffers().getValue());
  SmallVector<int64_t> offsets(launch.getOffsets()),
      strides(launch.getStrides());
  OpBuilder declarations =
      OpBuilder::atBlockEnd(kernel->getParentOfType<ModuleOp>().getBody());
  // The name of a kernel is that of its op and a hash.
  Location origin =
      withOrigin(launch.getLoc(), kOpAttribute,
                 builder.getStringAttr(kernel.getSymName().rsplit('_').first));
  auto buffer = exec::BufferOp::create(
      declarations, origin, "scratch." + std::to_string(number),
      kernel.getScratchBytes(), exec::BufferKind::scratch,
      /*always_live=*/false, kernel.getHost(), nullptr);
  symbols.insert(buffer);
  names.push_back(FlatSymbolRefAttr::get(buffer));
  offsets.push_back(0);
  strides.push_back(0);
  launch.setBuffersAttr(builder.getArrayAttr(names));
  launch.setOffsets(offsets);
  launch.setStrides(strides);
}

namespace {

struct PlanKernelsPass : impl::PlanKernelsBase<PlanKernelsPass> {
  explicit PlanKernelsPass(const Backends *backends) : backends(backends) {}

  void runOnOperation() override {
    const Backends &asked = backends ? *backends : getDefaultBackends();
    ModuleOp module = getOperation();
    for (auto kernel : module.getOps<exec::KernelOp>()) {
      FailureOr<KernelPlan> plan =
          asked.get(kernel.getSpace()).plan(kernel, /*tuning=*/{});
      if (failed(plan))
        return signalPassFailure();
      setPlan(kernel, *plan);
    }
    SymbolTable symbols(module);
    unsigned number = 0;
    module.walk([&](exec::LaunchOp launch) {
      addScratch(launch, symbols.lookup<exec::KernelOp>(launch.getKernel()),
                 symbols, number++);
    });
  }

  const Backends *backends;
};

} // namespace

std::unique_ptr<Pass> createPlanKernels(const Backends *backends) {
  return std::make_unique<PlanKernelsPass>(backends);
}

} // namespace kiln
