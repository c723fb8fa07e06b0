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

// The numbers, in the whole, of what a device has of a dimension.
Value Partitioner::numberElements(int64_t size, const Cut &cut, Location loc) {
  Composer c(builder, loc);
  if (cut.isWhole())
    return c.iota(size);
  int64_t units = cut.localUnits(size, mesh), run = units * cut.unit;
  Value first = c.mul(resharder.coordinate(cut.axes, loc), double(run));
  Value numbers = c.iota(run);
  numbers = c.add(numbers, c.spread(first, numbers));
  if (cut.blocks == 1)
    return numbers;
  auto box = RankedTensorType::get({cut.blocks, run}, builder.getI32Type());
  Value block = c.mul(c.iota(cut.blocks), double(size / cut.blocks));
  Value all = c.add(c.broadcast("r->br", numbers, box),
                    c.broadcast("b->br", block, box));
  return c.reshape(all, {cut.blocks * run});
}

// Elements of a sample in the order of the whole tensor.
Value Partitioner::numberSampleElements(RankedTensorType whole,
                                        const Sharding &sharding,
                                        Location loc) {
  Composer c(builder, loc);
  RankedTensorType local = sharding.localBox(whole, mesh);
  auto box = RankedTensorType::get(local.getShape().drop_front(),
                                   builder.getI32Type());
  std::string letters = indexLetters(box.getRank());
  Value numbers;
  int64_t stride = 1;
  for (int64_t dim = whole.getRank() - 1; dim > 0; --dim) {
    Value index =
        numberElements(whole.getDimSize(dim), sharding.dims[dim], loc);
    Value term = c.broadcast(letters.substr(dim - 1, 1) + "->" + letters,
                             c.mul(index, double(stride)), box);
    numbers = numbers ? c.add(numbers, term) : term;
    stride *= whole.getDimSize(dim);
  }
  return numbers;
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
    if (!isElementwise(op)) {
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
