// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks what holds between the parts of the pipeline. A verifier of an op sees
// the op alone; these are facts of a whole module, each established by one
// part and relied on by all that follow. The ops are verified here too, after
// the step, after sharding and at the end, instead of after every pass.
#include "compiler/fuse/KernelDomain.h"
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_VERIFYCONTRACT
#include "compiler/pipeline/Passes.h.inc"

// The loss has become a step: its regions agree with each other (StepOp's own
// verifier), and every parameter is assigned in the update.
static LogicalResult verifyStep(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (function->hasAttr(kLossAttribute))
      return function.emitError("is still a loss; wanted a kiln.step");
  llvm::StringSet<> assigned;
  bool hasStep = false;
  module.walk([&](StepOp step) {
    hasStep = true;
    step.getUpdate().walk(
        [&](AssignOp assign) { assigned.insert(assign.getVariable()); });
    for (Region *region : {&step.getPrologue(), &step.getAccumulate()})
      region->walk([&](AssignOp assign) {
        assign.emitOpError("assigns outside of the update");
        hasStep = false;
      });
  });
  for (auto variable : module.getOps<VariableOp>())
    if (hasStep && variable.getRole() == Role::parameter &&
        !assigned.contains(variable.getSymName()))
      return variable.emitError(
          "is a parameter that the update does not assign");
  return success();
}

// Each device has its shard of every variable, and collectives are over axes of
// the mesh.
static LogicalResult verifyShards(ModuleOp module) {
  shard::Mesh mesh = shard::getMesh(module);
  for (auto variable : module.getOps<VariableOp>()) {
    if (!variable.getWhole())
      continue;
    shard::Sharding sharding = shard::Sharding::of(variable, mesh);
    if (failed(shard::verifyTiling([&] { return variable.emitError(); },
                                   variable.getWholeType(),
                                   variable.getTensorType(), sharding, mesh)))
      return failure();
  }
  WalkResult walked = module.walk([&](Operation *op) {
    if (!isa<Collective>(op))
      return WalkResult::advance();
    auto axes = op->getAttrOfType<ArrayAttr>("axes");
    if (mesh.findAxes(axes))
      return WalkResult::advance();
    op->emitOpError("is over ") << axes << ", which the mesh does not have";
    return WalkResult::interrupt();
  });
  return failure(walked.wasInterrupted());
}

// Ops of a phase are kernels, or tie them together; every size is static.
static LogicalResult verifyKernels(ModuleOp module) {
  WalkResult walked = module.walk([&](PhaseOp phase) {
    for (Operation &op : phase.getBody().front()) {
      if (needsKernel(&op)) {
        op.emitOpError("is not in a kernel");
        return WalkResult::interrupt();
      }
      for (Type type : op.getResultTypes())
        if (!cast<RankedTensorType>(type).hasStaticShape()) {
          op.emitOpError("has a result of unknown size, ") << type;
          return WalkResult::interrupt();
        }
    }
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

static LogicalResult verifyLaunch(exec::LaunchOp launch, SymbolTable &symbols) {
  auto kernel = symbols.lookup<exec::KernelOp>(launch.getKernel());
  if (!kernel)
    return launch.emitOpError("runs kernel ")
           << launch.getKernel() << ", which is not there";
  Block &body = kernel.getBody().front();
  size_t wanted =
      body.getNumArguments() + body.getTerminator()->getNumOperands();
  size_t found = launch.getBuffers().size();
  if (found != wanted && found != wanted + 1)
    return launch.emitOpError("passes ")
           << found << " buffers; kernel " << launch.getKernel() << " has "
           << wanted << " operands";
  for (Attribute name : launch.getBuffers()) {
    auto buffer = symbols.lookup<exec::BufferOp>(
        cast<FlatSymbolRefAttr>(name).getValue());
    if (!buffer || buffer.getSpace() != kernel.getSpace())
      return launch.emitOpError("passes ")
             << name << ", which does not lie in the memory that kernel "
             << launch.getKernel() << " works on";
  }
  return success();
}

// Commands name buffers and kernels that are there and lie where the kernels
// run; a collective is waited for once, in the program that starts it.
static LogicalResult verifyCommands(ModuleOp module) {
  SymbolTable symbols(module);
  for (auto program : module.getOps<exec::ProgramOp>()) {
    llvm::SmallDenseSet<int64_t> running;
    WalkResult walked = program.walk([&](Operation *op) {
      LogicalResult result = success();
      if (auto launch = dyn_cast<exec::LaunchOp>(op))
        result = verifyLaunch(launch, symbols);
      if (auto start = dyn_cast<exec::CollectiveOp>(op))
        if (!running.insert(start.getTicket()).second)
          result = start.emitOpError("has ticket ")
                   << start.getTicket() << " of one that is still running";
      if (auto wait = dyn_cast<exec::WaitOp>(op))
        if (!running.erase(wait.getTicket()))
          result = wait.emitOpError("waits for ticket ")
                   << wait.getTicket() << ", which is not running";
      return failed(result) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
    if (!running.empty())
      return program.emitOpError("never waits for ticket ") << *running.begin();
  }
  return success();
}

// Every kernel is planned and every buffer lies in the arena of its space.
static LogicalResult verifyPlan(ModuleOp module) {
  auto getBytes = [&](StringRef name) -> int64_t {
    auto bytes = module->getAttrOfType<IntegerAttr>(name);
    return bytes ? bytes.getInt() : 0;
  };
  int64_t arena = getBytes("exec.arena_bytes"),
          end = arena + getBytes("exec.host_bytes");
  for (auto kernel : module.getOps<exec::KernelOp>())
    if (!kernel.getStages())
      return kernel.emitOpError("is not planned");
  for (auto buffer : module.getOps<exec::BufferOp>()) {
    if (!buffer.getOffset())
      continue; // Nothing uses it.
    int64_t begin = *buffer.getOffset(), past = begin + buffer.getBytes();
    bool isInside = buffer.getHost() ? begin >= arena && past <= end
                                     : begin >= 0 && past <= arena;
    if (!isInside)
      return buffer.emitOpError("lies at ")
             << begin << ", outside of the memory that is planned";
  }
  return success();
}

namespace {

struct VerifyContractPass : impl::VerifyContractBase<VerifyContractPass> {
  using VerifyContractBase::VerifyContractBase;

  void runOnOperation() override {
    using Check = LogicalResult (*)(ModuleOp);
    static constexpr std::pair<StringLiteral, Check> checks[] = {
        {"step", verifyStep},    {"shard", verifyShards},
        {"fuse", verifyKernels}, {"lower", verifyCommands},
        {"plan", verifyPlan},
    };
    for (auto [name, check] : checks)
      if (name == after) {
        // One device has the step of the model itself.
        bool isSharded =
            llvm::any_of(shard::getMesh(getOperation()).sizes,
                         [](int64_t devices) { return devices > 1; });
        bool verifiesOps =
            name == "step" || name == "plan" || (name == "shard" && isSharded);
        if ((verifiesOps && failed(verify(getOperation()))) ||
            failed(check(getOperation())))
          signalPassFailure();
        markAllAnalysesPreserved();
        return;
      }
    getOperation().emitError("knows no contract '") << after << "'";
    signalPassFailure();
  }
};

} // namespace
} // namespace kiln
