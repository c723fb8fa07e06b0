// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Definitions of composite ops in terms of simpler ones, and costs of those
// with a joint form.
#include "dialects/kiln/Composer.h"

#include <numbers>

using namespace mlir;

namespace kiln {

using Values = SmallVector<Value>;

Values ReluOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  return {c.maximum(getOperand(), c.fill(0, getOperand()))};
}

Values GeluOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getOperand(), bend;
  if (getTanh()) {
    double root = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    bend = c.tanh(c.mul(x, c.add(c.mul(c.mul(x, x), 0.044715 * root), root)));
  } else {
    bend = c.erf(c.mul(x, std::numbers::sqrt2 / 2));
  }
  return {c.mul(x, c.mul(c.add(bend, 1), 0.5))};
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

Values SoftmaxOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getOperand();
  Value e = c.exp(c.sub(x, c.spreadRows(c.maxRows(x), x)));
  return {c.div(e, c.spreadRows(c.sumRows(e), x))};
}

static Value oneHot(Composer &c, Value labels, Value like) {
  return c.convert(c.isLabel(labels, like), tensorType(like).getElementType());
}

// A row without a label has no part in the loss: `hot` sums to 0 there, else 1.
Values SoftmaxCrossEntropyOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getLogits();
  Value shifted = c.sub(x, c.spreadRows(c.maxRows(x), x));
  Value lse = c.log(c.sumRows(c.exp(shifted)));
  Value hot = oneHot(c, getLabels(), x);
  Value picked = c.sumRows(c.mul(shifted, hot));
  return {c.sumAll(c.sub(c.mul(lse, c.sumRows(hot)), picked))};
}

Values HeadLossOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getX();
  int64_t rank = tensorType(x).getRank();
  std::string rows = indexLetters(rank - 1);
  std::string logitsEquation = rows + "x,vx->" + rows + "v";
  Value logits = c.contract(logitsEquation, x, getWeight());
  Value shifted = c.sub(logits, c.spreadRows(c.maxRows(logits), logits));
  Value e = c.exp(shifted);
  Value sum = c.sumRows(e);
  Value hot = oneHot(c, getLabels(), logits);
  Value hasLabel = c.sumRows(hot);
  Value total = c.sumAll(
      c.sub(c.mul(c.log(sum), hasLabel), c.sumRows(c.mul(shifted, hot))));
  // Training does not ask; whoever cuts the parts over devices need not know.
  Value correct = getCorrect().use_empty()
                      ? c.constant(0, tensorType(x).getElementType())
                      : c.countCorrect(logits, getLabels());
  if (!hasGradients())
    return {total, correct};
  Value dlogits = c.sub(c.mul(e, c.spreadRows(c.div(hasLabel, sum), e)), hot);
  return {total, correct,
          c.contract(rows + "v,vx->" + rows + "x", dlogits, getWeight()),
          c.contract(rows + "v," + rows + "x->vx", dlogits, x)};
}

bool HeadLossOp::hasJointForm() { return true; }
bool AttentionOp::hasJointForm() { return true; }
bool AttentionGradOp::hasJointForm() { return true; }

namespace {
struct Heads {
  Value queries, keys, values;
};
} // namespace

static Heads unpack(Composer &c, Value packed) {
  ArrayRef<int64_t> shape = tensorType(packed).getShape();
  auto part = [&](int64_t index) {
    return c.reshape(c.slice(packed, 2, index, 1),
                     {shape[0], shape[1], shape[3], shape[4]});
  };
  return {part(0), part(1), part(2)};
}

static Value buildScores(Composer &c, const Heads &heads, double scale,
                         bool isCausal, Value lengths) {
  Value scores =
      c.mul(c.contract("bshd,bthd->bhst", heads.queries, heads.keys), scale);
  return c.maskScores(scores, isCausal, lengths);
}

Values AttentionOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Heads heads = unpack(c, getPacked());
  Value scores = buildScores(c, heads, getScale().convertToDouble(),
                             getCausal(), getLengths());
  Value greatest = c.maxRows(scores);
  Value e = c.exp(c.sub(scores, c.spreadRows(greatest, scores)));
  Value sum = c.sumRows(e);
  Value weights = c.div(e, c.spreadRows(sum, e));
  return {c.contract("bhst,bthd->bshd", weights, heads.values),
          c.add(greatest, c.log(sum))};
}

// With P = exp(scores - lse): dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO
// O)), dQ = dS K scale, dK = dS^T Q scale.
Values AttentionGradOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Heads heads = unpack(c, getPacked());
  double scale = getScale().convertToDouble();
  Value scores = buildScores(c, heads, scale, getCausal(), getLengths());
  Value weights = c.exp(c.sub(scores, c.spreadRows(getLse(), scores)));
  Value dValues = c.contract("bhst,bshd->bthd", weights, getGrad());
  Value dWeights = c.contract("bshd,bthd->bhst", getGrad(), heads.values);
  Value delta = c.contract("bshd,bshd->bhs", getGrad(), getResult());
  Value dScores = c.mul(
      c.mul(weights, c.sub(dWeights, c.spreadRows(delta, dWeights))), scale);
  Value dQueries = c.contract("bhst,bthd->bshd", dScores, heads.keys);
  Value dKeys = c.contract("bhst,bshd->bthd", dScores, heads.queries);
  SmallVector<Value> parts;
  ArrayRef<int64_t> shape = tensorType(getPacked()).getShape();
  for (Value part : {dQueries, dKeys, dValues})
    parts.push_back(
        c.reshape(part, {shape[0], shape[1], 1, shape[3], shape[4]}));
  return {c.concatenate(parts, 2)};
}

// Query-key pairs of all heads. A causal row s sees s + 1 keys.
static int64_t countPairs(RankedTensorType packed, bool isCausal) {
  ArrayRef<int64_t> shape = packed.getShape();
  int64_t sequence = shape[1];
  int64_t pairs =
      isCausal ? sequence * (sequence + 1) / 2 : sequence * sequence;
  return shape[0] * shape[3] * pairs;
}

// Two products (scores and result), a multiplication and an addition each.
int64_t AttentionOp::getFlops() {
  auto packed = tensorType(getPacked());
  return 4 * packed.getShape().back() * countPairs(packed, getCausal());
}

// Scale, subtract, exponential, sum and divide for every pair.
int64_t AttentionOp::getPointwise() {
  return 5 * countPairs(tensorType(getPacked()), getCausal());
}

// Five products: scores again, dV, dP, dQ and dK.
int64_t AttentionGradOp::getFlops() {
  auto packed = tensorType(getPacked());
  return 10 * packed.getShape().back() * countPairs(packed, getCausal());
}

int64_t AttentionGradOp::getPointwise() {
  return 5 * countPairs(tensorType(getPacked()), getCausal());
}

// Logits, and dx and dw.
int64_t HeadLossOp::getFlops() {
  auto weight = tensorType(getWeight());
  int64_t tokens = tensorType(getLabels()).getNumElements();
  return (hasGradients() ? 3 : 1) * 2 * tokens * weight.getNumElements();
}

int64_t HeadLossOp::getPointwise() {
  return 5 * tensorType(getLabels()).getNumElements() *
         tensorType(getWeight()).getDimSize(0);
}

// Elements are numbered within their sample, so that neither the batch nor its
// cuts matter.
Values DropoutOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  RankedTensorType type = tensorType(getOperand());
  int64_t batch = type.getDimSize(0), size = type.getNumElements() / batch;
  Value x = c.reshape(getOperand(), {batch, size});
  double rate = getRate().convertToDouble();
  Value step = c.convert(getStep(), builder.getI32Type());
  Value elements =
      getElements() ? c.reshape(getElements(), {size}) : c.iota(size);
  Value number =
      RandomOp::create(builder, getLoc(), x.getType(), getSamples(), elements,
                       step, getSeedAttr(), getStreamAttr());
  Value kept = c.select(c.compare(Predicate::ge, number, rate),
                        c.mul(x, 1 / (1 - rate)), c.fill(0, x));
  return {c.reshape(kept, type.getShape())};
}

namespace {
/// [batch, ..., channels] as [groups, places of a group, channels].
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
  /// A statistic of each group as one of each sample, and back.
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

} // namespace kiln
