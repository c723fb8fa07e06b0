// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Broadcasts, iotas and elementwise ops on them are rematerialised at each use,
// with the sharding that the use wants.
#include "compiler/shard/Partitioner.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace kiln::shard {

bool Partitioner::isLazy(Value full) {
  auto found = known.find(full);
  return found != known.end() && !found->second.local;
}

bool Partitioner::isLazyOp(Operation *op) {
  if (op->getNumResults() != 1 || tensorType(op->getResult(0)).getRank() == 0)
    return false;
  return isMovement(op, Movement::repeat) || isa<IotaOp>(op) ||
         (isElementwise(op) &&
          llvm::all_of(op->getOperands(),
                       [&](Value operand) { return isLazy(operand); }));
}

// A lazy op proposes the cut of its operands.
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

// Global index of this device's first element of a dimension's first block.
Value Partitioner::getFirstIndex(int64_t size, const Cut &cut, Location loc) {
  return Composer(builder, loc)
      .mul(resharder.coordinate(cut.axes, loc),
           double(cut.localUnits(size, mesh) * cut.unit));
}

// Global indices of this device's elements of a dimension.
Value Partitioner::getGlobalIndices(int64_t size, const Cut &cut,
                                    Location loc) {
  Composer c(builder, loc);
  if (cut.isWhole())
    return c.iota(size);
  int64_t run = cut.localUnits(size, mesh) * cut.unit;
  Value indices = c.iota(run);
  indices = c.add(indices, c.spread(getFirstIndex(size, cut, loc), indices));
  if (cut.blocks == 1)
    return indices;
  auto box = RankedTensorType::get({cut.blocks, run}, builder.getI32Type());
  Value block = c.mul(c.iota(cut.blocks), double(size / cut.blocks));
  Value all = c.add(c.broadcast("r->br", indices, box),
                    c.broadcast("b->br", block, box));
  return c.reshape(all, {cut.blocks * run});
}

// The dimension along which an iota runs, or one that is repeated along all
// others.
static std::optional<unsigned> findIndexedDimension(Operation *op) {
  if (isa<IotaOp>(op))
    return 0;
  if (!isMovement(op, Movement::repeat) ||
      !op->getOperand(0).getDefiningOp<IotaOp>())
    return std::nullopt;
  FactorRule rule = *FactorRule::get(op);
  return FactorRule::findDim(rule.results[0], rule.operands[0][0]);
}

// Global indices along one dimension of the elements of a flat shard. A run has
// no box of indices that it could be a slice of: they follow from the place in
// the flattened shard.
Value Partitioner::getFlatIndices(Operation *op, unsigned dimension,
                                  const Sharding &wanted) {
  Location loc = op->getLoc();
  Composer c(builder, loc);
  RankedTensorType type = tensorType(op->getResult(0));
  Sharding sharding = wanted;
  sharding.flat.clear();
  RankedTensorType box = sharding.localBox(type, mesh);
  int64_t run = wanted.localType(type, mesh).getNumElements();
  Value place = c.iota(run);
  auto add = [&](Value indices, Value scalar) {
    return c.add(indices, c.spread(scalar, indices));
  };
  place =
      add(place, c.mul(resharder.coordinate(wanted.flat, loc), double(run)));
  auto divide = [&](Value indices, int64_t by) {
    return QuotientOp::create(builder, loc, indices,
                              c.fill(double(by), indices))
        .getResult();
  };
  int64_t stride = llvm::product_of(box.getShape().drop_front(dimension + 1));
  Value local = stride > 1 ? divide(place, stride) : place;
  if (dimension > 0) {
    int64_t size = box.getDimSize(dimension);
    local = c.sub(local, c.mul(divide(local, size), double(size)));
  }
  const Cut &cut = sharding.dims[dimension];
  if (!cut.isWhole()) {
    int64_t size = type.getDimSize(dimension);
    int64_t part = cut.localUnits(size, mesh) * cut.unit;
    Value first = getFirstIndex(size, cut, loc);
    if (cut.blocks > 1)
      local = c.add(
          local, c.mul(divide(local, part), double(size / cut.blocks - part)));
    local = add(local, first);
  }
  return c.convert(local, type.getElementType());
}

SmallVector<Sharding> Partitioner::inferLazyOperands(const FactorRule &rule,
                                                     const Sharding &wanted) {
  SmallVector<Sharding> shardings;
  for (const FactorRule::Dims &dims : rule.operands) {
    Sharding &sharding = shardings.emplace_back(Sharding::whole(dims.size()));
    for (auto [cut, factor] : llvm::zip_equal(sharding.dims, dims))
      if (auto dim = FactorRule::findDim(rule.results[0], factor))
        cut = wanted.dims[*dim];
  }
  return shardings;
}

Value Partitioner::materialise(Operation *op, const Sharding &wanted) {
  Value full = op->getResult(0);
  RankedTensorType type = tensorType(full);
  if (!wanted.partial.empty()) {
    // Only zeros are wanted as partial sums.
    Sharding summed = wanted;
    summed.partial.clear();
    return get(full, summed);
  }
  Composer c(builder, op->getLoc());
  if (!wanted.flat.empty()) {
    RankedTensorType local = wanted.localType(type, mesh);
    if (isMovement(op, Movement::repeat) &&
        tensorType(op->getOperand(0)).getRank() == 0)
      return c.broadcast("->a", getFull(op->getOperand(0)), local);
    if (std::optional<unsigned> dimension = findIndexedDimension(op))
      return getFlatIndices(op, *dimension, wanted);
    if (!isElementwiseOnFlat(op)) {
      Sharding box = wanted;
      box.flat.clear();
      return resharder.reshard(get(full, box), type, box, wanted);
    }
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, get(operand, wanted));
    Operation *copy = builder.clone(*op, mapping);
    copy->getResult(0).setType(local);
    return copy->getResult(0);
  }
  if (isa<IotaOp>(op)) {
    Value indices =
        getGlobalIndices(type.getDimSize(0), wanted.dims[0], op->getLoc());
    return c.convert(indices, type.getElementType());
  }
  IRMapping mapping;
  for (auto [operand, sharding] : llvm::zip_equal(
           op->getOperands(), inferLazyOperands(*FactorRule::get(op), wanted)))
    mapping.map(operand, get(operand, sharding));
  Operation *copy = builder.clone(*op, mapping);
  copy->getResult(0).setType(wanted.localBox(type, mesh));
  return copy->getResult(0);
}

} // namespace kiln::shard
