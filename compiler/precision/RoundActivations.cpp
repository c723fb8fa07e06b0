// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a model compute on bf16: activations, and the matrices that they are
// multiplied with, are rounded to bf16 where they are produced. Sums inside an
// op, statistics of norms, losses, gradients of parameters and the parameters
// themselves stay f32. Differentiation rounds gradients of activations at the
// same points, because the gradient of a conversion is a conversion.
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Composer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_ROUNDACTIVATIONS
#include "compiler/pipeline/Passes.h.inc"

// Ops that only move elements have nothing to round, save for a lookup in a
// table of f32; sums are f32 by intent.
static bool isRounded(Operation *op) {
  if (isMovement(op, Movement::lookup))
    return true;
  return !isa<Rearranging, ConvertOp>(op) && !isSum(op);
}

static bool isActivation(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32() && !type.hasStaticShape();
}

// An embedding table is rounded per looked-up row, not in full.
static bool isMultiplied(OpOperand &use) {
  return !isMovement(use.getOwner(), Movement::lookup);
}

static void roundValue(Value value, OpBuilder &builder) {
  Composer c(builder, value.getLoc());
  Value narrow = c.convert(value, builder.getBF16Type());
  Value rounded = c.convert(narrow, builder.getF32Type());
  // Rounding belongs to the op that produced the value, and to its layer.
  if (Operation *maker = value.getDefiningOp())
    for (Operation *op : {narrow.getDefiningOp(), rounded.getDefiningOp()})
      op->setDiscardableAttrs(maker->getDiscardableAttrDictionary());
  value.replaceUsesWithIf(rounded, [&](OpOperand &use) {
    return use.getOwner() != narrow.getDefiningOp() && isMultiplied(use);
  });
}

namespace {

struct RoundActivationsPass : impl::RoundActivationsBase<RoundActivationsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(kLossAttribute) ||
          function->hasAttr(kEvaluationAttribute))
        round(function);
  }

  static void round(func::FuncOp function) {
    SmallVector<Operation *> ops;
    for (Operation &op : function.front().without_terminator())
      ops.push_back(&op);
    OpBuilder builder = OpBuilder::atBlockBegin(&function.front());
    for (BlockArgument argument : function.getArguments()) {
      auto type = cast<RankedTensorType>(argument.getType());
      bool isMatrix = type.getElementType().isF32() && type.getRank() > 1;
      if (isActivation(argument) || isMatrix)
        roundValue(argument, builder);
    }
    for (Operation *op : ops)
      // Further results are statistics.
      if (isRounded(op) && isActivation(op->getResult(0))) {
        builder.setInsertionPointAfter(op);
        roundValue(op->getResult(0), builder);
      }
  }
};

} // namespace
} // namespace kiln
