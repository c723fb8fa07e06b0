// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups the ops of each phase into kernels (Grouping) and moves each group
// into the body of one. Expanding ops are copied to every reader first, so that
// their results are never stored.
#include "compiler/fuse/Grouping.h"
#include "compiler/fuse/KernelDomain.h"
#include "compiler/pipeline/Passes.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_FUSEKERNELS
#include "compiler/pipeline/Passes.h.inc"

static void copyExpandingOpsToReaders(Block &block, OpFactTable &facts) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    if (!facts.get(op).isExpanding)
      continue;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : op->getUses())
      uses.push_back(&use);
    for (OpOperand *use : ArrayRef(uses).drop_front(uses.empty() ? 0 : 1)) {
      OpBuilder builder(use->getOwner());
      use->set(builder.clone(*op)->getResult(0));
    }
    if (uses.empty())
      op->erase();
    else
      op->moveBefore(uses.front()->getOwner());
  }
}

// Moves the ops of a group into the body of a new kernel at the builder's
// place.
static void outline(ArrayRef<Operation *> ops, OpBuilder &builder) {
  llvm::SmallPtrSet<Operation *, 32> members(ops.begin(), ops.end());
  llvm::SmallSetVector<Value, 8> distinctInputs;
  SmallVector<Value> inputs, outputs;
  for (Operation *op : ops) {
    for (Value operand : op->getOperands()) {
      bool isOutside = !operand.getDefiningOp() ||
                       !members.contains(operand.getDefiningOp());
      // Code for a single op finds its operands by their index, even if two
      // are the same.
      if (isOutside && (distinctInputs.insert(operand) || ops.size() == 1))
        inputs.push_back(operand);
    }
    for (Value result : op->getResults()) {
      bool isRead = llvm::any_of(result.getUsers(), [&](Operation *user) {
        return !members.contains(user);
      });
      // An op with several results computes them all; a dead one still needs a
      // buffer.
      if (isRead || (op->getNumResults() > 1 && ops.size() == 1))
        outputs.push_back(result);
    }
  }
  Location loc = ops.back()->getLoc();
  auto kernel =
      KernelOp::create(builder, loc, ValueRange(outputs).getTypes(), inputs);
  for (auto [output, result] : llvm::zip_equal(outputs, kernel.getResults()))
    output.replaceUsesWithIf(result, [&](OpOperand &use) {
      return !members.contains(use.getOwner());
    });
  Block &body = kernel.getBody().emplaceBlock();
  llvm::SmallDenseMap<Value, Value, 8> arguments;
  for (Value input : inputs)
    arguments[input] = body.addArgument(input.getType(), loc);
  for (Operation *op : ops) {
    op->moveBefore(&body, body.end());
    for (OpOperand &operand : op->getOpOperands())
      if (Value argument = arguments.lookup(operand.get()))
        operand.set(argument);
  }
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  YieldOp::create(inner, loc, outputs);
}

namespace {

struct FuseKernelsPass : impl::FuseKernelsBase<FuseKernelsPass> {
  explicit FuseKernelsPass(const Backends *backends) : backends(backends) {}

  void runOnOperation() override {
    FusionLimits limits = (backends ? *backends : getDefaultBackends(reference))
                              .getDevice()
                              .getFusionLimits();
    OpFactTable facts;
    getOperation().walk([&](PhaseOp phase) {
      fuseBlock(phase.getBody().front(), limits, facts);
    });
  }

  void fuseBlock(Block &block, const FusionLimits &limits, OpFactTable &facts) {
    if (limits.operations > 1)
      copyExpandingOpsToReaders(block, facts);
    Grouping grouping(block, limits, facts);
    grouping.fuseAll();
    grouping.copyToReaders();
    OpBuilder builder(block.getTerminator());
    for (OpGroup *group : grouping.getOrder())
      if (needsKernel(group->ops.front()))
        outline(group->ops, builder);
      else
        group->ops.front()->moveBefore(block.getTerminator());
  }

  const Backends *backends;
};

} // namespace

std::unique_ptr<Pass> createFuseKernels(const Backends *backends) {
  return std::make_unique<FuseKernelsPass>(backends);
}

} // namespace kiln
