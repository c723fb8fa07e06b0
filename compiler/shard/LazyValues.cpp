// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is repeated, counted or made of such is made where it is used, and as it
// is used there.
#include "compiler/shard/Partitioner.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace kiln::shard {

bool Partitioner::isLazy(Value whole) {
  auto found = known.find(whole);
  return found != known.end() && !found->second.local;
}

bool Partitioner::isLazyOp(Operation *op) {
  if (op->getNumResults() != 1 || tensorType(op->getResult(0)).getRank() == 0)
    return false;
  return isa<BroadcastOp, IotaOp>(op) ||
         (isElementwise(op) &&
          llvm::all_of(op->getOperands(),
                       [&](Value operand) { return isLazy(operand); }));
}

// How it lies if nobody asks: cut as what it is made of.
Sharding Partitioner::inferLazy(Operation *op) {
  FactorRule rule = *FactorRule::get(op);
  Sharding sharding = Sharding::whole(tensorType(op->getResult(0)).getRank());
  for (auto [operand, dims] :
       llvm::zip_equal(op->getOperands(), rule.operands)) {
    Sharding from = getSharding(operand);
    if (!from.flat.empty())
      continue;
    for (auto [cut, factor] : llvm::zip_equal(from.dims, dims))
      if (auto dim = FactorRule::findDim(rule.results[0], factor);
          dim && !cut.isWhole() && sharding.isWhole())
        sharding.dims[*dim] = cut;
  }
  return sharding;
}

// The number, in the whole, of the first that a device has of a dimension's
// first block.
Value Partitioner::numberFirst(int64_t size, const Cut &cut, Location loc) {
  return Composer(builder, loc)
      .mul(resharder.coordinate(cut.axes, loc),
           double(cut.localUnits(size, mesh) * cut.unit));
}

// The numbers, in the whole, of what a device has of a dimension.
Value Partitioner::numberElements(int64_t size, const Cut &cut, Location loc) {
  Composer c(builder, loc);
  if (cut.isWhole())
    return c.iota(size);
  int64_t run = cut.localUnits(size, mesh) * cut.unit;
  Value numbers = c.iota(run);
  numbers = c.add(numbers, c.spread(numberFirst(size, cut, loc), numbers));
  if (cut.blocks == 1)
    return numbers;
  auto box = RankedTensorType::get({cut.blocks, run}, builder.getI32Type());
  Value block = c.mul(c.iota(cut.blocks), double(size / cut.blocks));
  Value all = c.add(c.broadcast("r->br", numbers, box),
                    c.broadcast("b->br", block, box));
  return c.reshape(all, {cut.blocks * run});
}

Value Partitioner::materialise(Operation *op, const Sharding &wanted) {
  Value whole = op->getResult(0);
  RankedTensorType type = tensorType(whole);
  if (!wanted.partial.empty()) {
    // Only zeros are asked for as terms of a sum.
    Sharding summed = wanted;
    summed.partial.clear();
    return get(whole, summed);
  }
  Composer c(builder, op->getLoc());
  if (!wanted.flat.empty()) {
    RankedTensorType local = wanted.localType(type, mesh);
    if (isa<BroadcastOp>(op) && tensorType(op->getOperand(0)).getRank() == 0)
      return c.broadcast("->a", getWhole(op->getOperand(0)), local);
    if (!isElementwiseOnRuns(op)) {
      Sharding box = wanted;
      box.flat.clear();
      return resharder.reshard(get(whole, box), type, box, wanted);
    }
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, get(operand, wanted));
    Operation *copy = builder.clone(*op, mapping);
    copy->getResult(0).setType(local);
    return copy->getResult(0);
  }
  if (isa<IotaOp>(op)) {
    Value numbers =
        numberElements(type.getDimSize(0), wanted.dims[0], op->getLoc());
    return c.convert(numbers, type.getElementType());
  }
  FactorRule rule = *FactorRule::get(op);
  IRMapping mapping;
  for (auto [operand, dims] :
       llvm::zip_equal(op->getOperands(), rule.operands)) {
    Sharding sharding = Sharding::whole(dims.size());
    for (auto [cut, factor] : llvm::zip_equal(sharding.dims, dims))
      if (auto dim = FactorRule::findDim(rule.results[0], factor))
        cut = wanted.dims[*dim];
    mapping.map(operand, get(operand, sharding));
  }
  Operation *copy = builder.clone(*op, mapping);
  copy->getResult(0).setType(wanted.localBox(type, mesh));
  return copy->getResult(0);
}

} // namespace kiln::shard
