// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layer norm and batch norm.
#include "dialects/kiln/Answers.h"

using namespace mlir;

namespace kiln {

LogicalResult LayerNormOp::verify() {
  auto type = cast<RankedTensorType>(getOperand().getType());
  if (type.getRank() < 1)
    return emitOpError("needs a dimension to normalise, found ") << type;
  auto vector =
      RankedTensorType::get(type.getShape().back(), type.getElementType());
  auto rows =
      RankedTensorType::get(type.getShape().drop_back(), type.getElementType());
  if (getScale().getType() != vector ||
      (getShift() && getShift().getType() != vector))
    return emitOpError("needs scale and shift of type ")
           << vector << ", found " << getScale().getType();
  if (getResult().getType() != type || getMean().getType() != rows ||
      getRstd().getType() != rows)
    return emitOpError("must have results ")
           << type << ", " << rows << " and " << rows;
  return success();
}

// Two passes over a row, so that a large mean does not cancel the variance.
Values LayerNormOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getOperand();
  double size = tensorType(x).getShape().back();
  Value mean = c.div(c.sumRows(x), size);
  Value centred = c.sub(x, c.spreadRows(mean, x));
  Value variance = c.div(c.sumRows(c.mul(centred, centred)), size);
  Value rstd = c.rsqrt(c.add(variance, getEpsilon().convertToDouble()));
  Value scaled = c.mul(c.mul(centred, c.spreadRows(rstd, x)),
                       c.spreadColumns(getScale(), x));
  if (getShift())
    scaled = c.add(scaled, c.spreadColumns(getShift(), x));
  return {scaled, mean, rstd};
}

// y = n w + b with n = (x - mean) rstd. With h = g w:
// dx = rstd (h - mean(h) - n mean(h n)), dw = sum g n, db = sum g.
Values LayerNormOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getOperand(), g = grads[0];
  if (!g || grads[1] || grads[2])
    return {}; // Mean and deviation are not differentiated.
  double size = tensorType(x).getShape().back();
  Value n =
      c.mul(c.sub(x, c.spreadRows(getMean(), x)), c.spreadRows(getRstd(), x));
  Value h = c.mul(g, c.spreadColumns(getScale(), x));
  Value meanH = c.div(c.sumRows(h), size);
  Value meanHn = c.div(c.sumRows(c.mul(h, n)), size);
  Value centred = c.sub(c.sub(h, c.spreadRows(meanH, x)),
                        c.mul(n, c.spreadRows(meanHn, x)));
  Values result = {c.mul(centred, c.spreadRows(getRstd(), x)),
                   c.sumColumns(c.mul(g, n))};
  if (getShift())
    result.push_back(c.sumColumns(g));
  return result;
}

std::string LayerNormOp::getFactors() {
  std::string rows = rowsOf(getOperand());
  return rows + "X,X" + (getShift() ? ",X" : "") + "->" + rows + "X," + rows +
         "," + rows;
}

static LogicalResult verifyBatchNorm(Operation *op, RankedTensorType type,
                                     int64_t group, ArrayRef<Value> perChannel,
                                     ArrayRef<Value> perSample) {
  if (type.getRank() < 2)
    return op->emitOpError("needs [batch, ..., channels], found ") << type;
  int64_t batch = type.getDimSize(0);
  if (group < 1 || (!ShapedType::isDynamic(batch) && batch % group != 0))
    return op->emitOpError("takes statistics over groups of ")
           << group << " samples, which do not make up a batch of " << batch
           << "; wanted a multiple";
  auto vector =
      RankedTensorType::get(type.getShape().back(), type.getElementType());
  auto rows = RankedTensorType::get({batch, type.getShape().back()},
                                    type.getElementType());
  for (Value value : perChannel)
    if (value.getType() != vector)
      return op->emitOpError("needs ")
             << vector << " per channel, found " << value.getType();
  for (Value value : perSample)
    if (value.getType() != rows)
      return op->emitOpError("needs ")
             << rows << " for mean and variance, found " << value.getType();
  return success();
}

LogicalResult BatchNormOp::verify() {
  if (getResult().getType() != getOperand().getType())
    return emitOpError("turns ")
           << getOperand().getType() << " into " << getResult().getType();
  return verifyBatchNorm(*this, cast<RankedTensorType>(getOperand().getType()),
                         getGroup(), {getScale(), getShift()},
                         {getMean(), getVariance()});
}

namespace {
/// [batch, ..., channels] as [groups, positions of a group, channels].
struct Grouped {
  Grouped(Composer &c, Value x, int64_t group) : c(c) {
    ArrayRef<int64_t> shape = tensorType(x).getShape();
    channels = shape.back();
    batch = shape.front();
    groups = batch / group;
    places = tensorType(x).getNumElements() / channels / groups;
  }
  Value split(Value x) { return c.reshape(x, {groups, places, channels}); }
  Value sum(Value x) { return c.sum("gpc->gc", x); }
  Value spread(Value statistic, Value like) {
    return c.broadcast("gc->gpc", statistic, tensorType(like));
  }
  Value spreadChannels(Value vector, Value like) {
    return c.broadcast("c->gpc", vector, tensorType(like));
  }
  /// Expands a statistic per group to one per sample, and back.
  Value perSample(Value statistic) {
    auto type = RankedTensorType::get({groups, batch / groups, channels},
                                      tensorType(statistic).getElementType());
    return c.reshape(c.broadcast("gc->gbc", statistic, type),
                     {batch, channels});
  }
  Value perGroup(Value statistic) {
    Value samples = c.reshape(statistic, {groups, batch / groups, channels});
    return c.reshape(c.slice(samples, 1, 0, 1), {groups, channels});
  }

  Composer &c;
  int64_t batch, groups, places, channels;
};
} // namespace

// Two passes, as in layer_norm.
Values BatchNormOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Grouped grouped(c, getOperand(), getGroup());
  Value x = grouped.split(getOperand());
  Value mean = c.div(grouped.sum(x), double(grouped.places));
  Value centred = c.sub(x, grouped.spread(mean, x));
  Value variance =
      c.div(grouped.sum(c.mul(centred, centred)), double(grouped.places));
  Value rstd = c.rsqrt(c.add(variance, getEpsilon().convertToDouble()));
  Value scaled = c.mul(c.mul(centred, grouped.spread(rstd, x)),
                       grouped.spreadChannels(getScale(), x));
  Value result = c.add(scaled, grouped.spreadChannels(getShift(), x));
  return {c.reshape(result, tensorType(getOperand()).getShape()),
          grouped.perSample(mean), grouped.perSample(variance)};
}

Values BatchNormOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  if (!grads[0] || grads[1] || grads[2])
    return {}; // Statistics are not differentiated.
  auto grad = BatchNormGradOp::create(
      builder, getLoc(), getOperand().getType(), getScale().getType(),
      getShift().getType(), getOperand(), getScale(), getMean(), getVariance(),
      grads[0], getGroupAttr(), getEpsilonAttr());
  return {grad.getDoperand(), grad.getDscale(), grad.getDshift()};
}

// Statistics are over all positions of the samples of a group: only channels,
// and the batch in multiples of a group, may be sharded.
static std::string imageFactors(Value images) {
  std::string places;
  for (int64_t dim = 2; dim < tensorType(images).getRank(); ++dim)
    places += char('H' + dim - 2);
  return "b" + places + "c";
}

// The number of groups is unknown while the batch has no size.
Values BatchNormOp::decomposeForParts(OpBuilder &, ArrayRef<RankedTensorType>) {
  return {};
}

Values BatchNormGradOp::decomposeForParts(OpBuilder &,
                                          ArrayRef<RankedTensorType>) {
  return {};
}

std::string BatchNormOp::getFactors() {
  std::string images = imageFactors(getOperand());
  return images + ",c,c->" + images + ",bc,bc";
}

LogicalResult BatchNormGradOp::verify() {
  if (getGrad().getType() != getOperand().getType() ||
      getDoperand().getType() != getOperand().getType())
    return emitOpError("has gradients of types ")
           << getGrad().getType() << " and " << getDoperand().getType()
           << "; wanted that of the operand";
  return verifyBatchNorm(*this, cast<RankedTensorType>(getOperand().getType()),
                         getGroup(), {getScale(), getDscale(), getDshift()},
                         {getMean(), getVariance()});
}

// With n = (x - mean) rstd: dshift = sum g, dscale = sum g n and
// dx = scale rstd (g - mean(g) - n mean(g n)), means over each group.
Values BatchNormGradOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Grouped grouped(c, getOperand(), getGroup());
  Value x = grouped.split(getOperand()), g = grouped.split(getGrad());
  Value mean = grouped.perGroup(getMean());
  Value rstd = c.rsqrt(
      c.add(grouped.perGroup(getVariance()), getEpsilon().convertToDouble()));
  Value n = c.mul(c.sub(x, grouped.spread(mean, x)), grouped.spread(rstd, x));
  Value sumG = grouped.sum(g), sumGn = grouped.sum(c.mul(g, n));
  double places = double(grouped.places);
  Value centred = c.sub(c.sub(g, grouped.spread(c.div(sumG, places), x)),
                        c.mul(n, grouped.spread(c.div(sumGn, places), x)));
  Value slope = c.mul(rstd, c.broadcast("c->gc", getScale(), tensorType(rstd)));
  Value dx = c.mul(centred, grouped.spread(slope, x));
  return {c.reshape(dx, tensorType(getOperand()).getShape()),
          c.sum("gc->c", sumGn), c.sum("gc->c", sumG)};
}

std::string BatchNormGradOp::getFactors() {
  std::string images = imageFactors(getOperand());
  return images + ",c,bc,bc," + images + "->" + images + ",c,c";
}

} // namespace kiln
