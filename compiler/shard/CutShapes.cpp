// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ops that change shapes: cuts are mapped to the new shape, in blocks and
// units.
#include "compiler/shard/Partitioner.h"

using namespace mlir;

namespace kiln::shard {

namespace {
/// Dimensions that are reshaped together, as the blocks and units of a cut.
struct Span {
  int64_t blocks, units, unit;
};
} // namespace

// The cuts of a reshaped tensor, or none if one of them has no equivalent in
// the new shape. The batch is a dimension of its own.
static std::optional<SmallVector<Cut>>
mapCuts(ArrayRef<int64_t> from, ArrayRef<int64_t> to, ArrayRef<Cut> cuts) {
  SmallVector<Cut> mapped(to.size());
  unsigned first = 0, target = 0;
  while (first < from.size()) {
    // The fewest dimensions that have the same number of elements.
    unsigned last = first, targetLast = target;
    auto product = [](ArrayRef<int64_t> shape, unsigned begin, unsigned end) {
      int64_t size = 1;
      for (unsigned dim = begin; dim < end && dim < shape.size(); ++dim)
        size *= ShapedType::isDynamic(shape[dim]) ? 1 : shape[dim];
      return size;
    };
    bool isBatch = ShapedType::isDynamic(from[first]);
    ++last;
    ++targetLast;
    while (!isBatch &&
           product(from, first, last) != product(to, target, targetLast)) {
      if (product(from, first, last) < product(to, target, targetLast))
        ++last;
      else
        ++targetLast;
      if (last > from.size() || targetLast > to.size())
        return std::nullopt;
    }
    for (unsigned dim = first; dim < last; ++dim) {
      const Cut &cut = cuts[dim];
      if (cut.isWhole())
        continue;
      Span span{product(from, first, dim) * cut.blocks,
                cut.countUnits(from[dim]),
                cut.unit * product(from, dim + 1, last)};
      bool isFound = false;
      for (unsigned other = target;
           other < std::min<size_t>(targetLast, to.size()) && !isFound;
           ++other) {
        int64_t before = product(to, target, other),
                after = product(to, other + 1, targetLast);
        if (span.blocks % before != 0 || span.unit % after != 0)
          continue;
        Cut candidate{cut.axes, span.blocks / before, span.unit / after};
        if (candidate.blocks * span.units * candidate.unit != to[other] ||
            !mapped[other].isWhole())
          continue;
        mapped[other] = candidate;
        isFound = true;
      }
      if (!isFound)
        return std::nullopt;
    }
    first = last;
    target = targetLast;
  }
  return mapped;
}

LogicalResult Partitioner::visitReshape(ReshapeOp op) {
  Composer c(builder, op.getLoc());
  RankedTensorType from = tensorType(op.getOperand()),
                   to = tensorType(op.getResult());
  Sharding sharding = getSharding(op.getOperand());
  sharding.flat.clear();
  std::optional<SmallVector<Cut>> cuts =
      mapCuts(from.getShape(), to.getShape(), sharding.dims);
  if (!cuts) {
    sharding.dims.assign(from.getRank(), Cut());
    cuts.emplace(to.getRank());
  }
  Value local = get(op.getOperand(), sharding);
  Sharding result{*cuts, {}, sharding.partial};
  define(op.getResult(), c.reshape(local, result.localBox(to, mesh).getShape()),
         result);
  return success();
}

// A slice of complete blocks is a slice of each shard.
LogicalResult Partitioner::visitSlice(SliceOp op) {
  Composer c(builder, op.getLoc());
  RankedTensorType from = tensorType(op.getOperand()),
                   to = tensorType(op.getResult());
  int64_t dimension = op.getDimension(), offset = op.getOffset();
  int64_t size = to.getDimSize(dimension);
  Sharding sharding = getSharding(op.getOperand());
  sharding.flat.clear();
  Cut &cut = sharding.dims[dimension];
  Sharding result = sharding;
  int64_t localOffset = offset;
  if (!cut.isWhole()) {
    int64_t block = from.getDimSize(dimension) / cut.blocks;
    if (offset % block == 0 && size % block == 0) {
      int64_t localBlock =
          cut.localSize(from.getDimSize(dimension), mesh) / cut.blocks;
      localOffset = offset / block * localBlock;
      result.dims[dimension].blocks = size / block;
    } else {
      cut = result.dims[dimension] = Cut();
    }
  }
  Value local = get(op.getOperand(), sharding);
  define(op.getResult(),
         c.slice(local, dimension, localOffset,
                 result.localBox(to, mesh).getDimSize(dimension)),
         result);
  return success();
}

// Shards of equal blocks concatenated are shards of all the blocks.
LogicalResult Partitioner::visitConcatenate(ConcatenateOp op) {
  Composer c(builder, op.getLoc());
  RankedTensorType to = tensorType(op.getResult());
  int64_t dimension = op.getDimension();
  Sharding result = Sharding::whole(to.getRank());
  for (Value operand : op.getOperands())
    if (Sharding sharding = getSharding(operand);
        !isLazy(operand) && result.isWhole() && sharding.flat.empty())
      result.dims = sharding.dims;
  Cut &cut = result.dims[dimension];
  int64_t block = 0;
  if (!cut.isWhole()) {
    for (Value operand : op.getOperands())
      if (!isLazy(operand) && block == 0)
        block = tensorType(operand).getDimSize(dimension) / cut.blocks;
    for (Value operand : op.getOperands())
      if (tensorType(operand).getDimSize(dimension) % block != 0 ||
          block % cut.unit != 0)
        cut = Cut();
  }
  SmallVector<Value> locals;
  SmallVector<Axes> kept = keepPartial(op, std::nullopt);
  for (auto [operand, partial] : llvm::zip_equal(op.getOperands(), kept)) {
    Sharding wanted = result;
    if (!cut.isWhole())
      wanted.dims[dimension].blocks =
          tensorType(operand).getDimSize(dimension) / block;
    wanted.partial = partial;
    locals.push_back(get(operand, wanted));
  }
  if (!cut.isWhole())
    cut.blocks = to.getDimSize(dimension) / block;
  result.partial = kept.front();
  settle(op.getResult(), c.concatenate(locals, dimension), result);
  return success();
}

} // namespace kiln::shard
