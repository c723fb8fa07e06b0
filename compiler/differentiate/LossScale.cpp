// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/differentiate/LossScale.h"

using namespace mlir;

namespace kiln {

// A run whose gradients are not finite at this scale has another fault: the
// runtime ends it.
static constexpr double kSmallestScale = 1;

std::optional<LossScale> LossScale::declare(Operation *at) {
  auto module = at->getParentOfType<ModuleOp>();
  auto policy = module->getAttrOfType<DictionaryAttr>(kPrecisionAttribute);
  auto initial = policy ? policy.getAs<FloatAttr>(kLossScalePart) : FloatAttr();
  if (!initial)
    return std::nullopt;
  OpBuilder builder(at);
  auto scalar = RankedTensorType::get({}, builder.getF64Type());
  auto declare = [&](StringRef name, double value) {
    auto variable =
        VariableOp::create(builder, at->getLoc(), name, scalar, Role::state);
    variable.setInit(InitKind::constant);
    variable.setA(APFloat(value));
    return variable;
  };
  return LossScale(declare("loss_scale", initial.getValueAsDouble()),
                   declare("finite_steps", 0), declare("skipped_steps", 0),
                   policy.getAs<IntegerAttr>(kGrowthStepsPart).getInt());
}

static Value readScalar(Composer &c, VariableOp variable) {
  return ReadOp::create(c.builder, c.loc, variable.getTensorType(),
                        variable.getSymName());
}

Value LossScale::read(Composer &c) { return readScalar(c, scale); }

SmallVector<Value> LossScale::follow(Composer &c, Value before,
                                     Value isFinite) {
  auto write = [&](VariableOp variable, Value value) {
    AssignOp::create(c.builder, c.loc, variable.getSymName(), value);
  };
  Value row = c.add(readScalar(c, finiteSteps), 1);
  Value grows = c.compare(Predicate::ge, row, double(growthSteps));
  Value zero = c.fill(0, row);
  Value larger = c.select(grows, c.mul(before, 2), before);
  Value smaller = c.maximum(c.mul(before, 0.5), c.fill(kSmallestScale, before));
  write(scale, c.select(isFinite, larger, smaller));
  write(finiteSteps, c.select(isFinite, c.select(grows, zero, row), zero));
  Value skipped = readScalar(c, skippedSteps);
  Value count = c.select(isFinite, skipped, c.add(skipped, 1));
  write(skippedSteps, count);
  return {before, count};
}

} // namespace kiln
