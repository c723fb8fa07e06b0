// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Definitions of composite ops in terms of simpler ones, and costs of those
// with a joint form.
#include "dialects/kiln/Composer.h"

#include <limits>
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
  Value classes =
      c.spreadColumns(c.iota(tensorType(like).getShape().back()), like);
  Value wide = c.spreadRows(c.convert(labels, c.builder.getI32Type()), like);
  return c.convert(c.compare(Predicate::eq, wide, classes),
                   tensorType(like).getElementType());
}

Values SoftmaxCrossEntropyOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getLogits();
  Value shifted = c.sub(x, c.spreadRows(c.maxRows(x), x));
  Value lse = c.log(c.sumRows(c.exp(shifted)));
  Value picked = c.sumRows(c.mul(shifted, oneHot(c, getLabels(), x)));
  return {c.sumAll(c.sub(lse, picked))};
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
  Value total = c.sumAll(c.sub(c.log(sum), c.sumRows(c.mul(shifted, hot))));
  Value dlogits = c.sub(c.div(e, c.spreadRows(sum, e)), hot);
  return {total, c.contract(rows + "v,vx->" + rows + "x", dlogits, getWeight()),
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

// Scores[b, h, s, t] of query s and key t, minus infinity where the key lies in
// the future.
static Value buildScores(Composer &c, const Heads &heads, double scale,
                         bool isCausal) {
  Value scores =
      c.mul(c.contract("bshd,bthd->bhst", heads.queries, heads.keys), scale);
  if (!isCausal)
    return scores;
  RankedTensorType type = tensorType(scores);
  auto indices = type.clone(c.builder.getI32Type());
  Value query = c.broadcast("s->bhst", c.iota(type.getDimSize(2)), indices);
  Value key = c.broadcast("t->bhst", c.iota(type.getDimSize(3)), indices);
  return c.select(c.compare(Predicate::le, key, query), scores,
                  c.fill(-std::numeric_limits<double>::infinity(), scores));
}

Values AttentionOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Heads heads = unpack(c, getPacked());
  Value scores =
      buildScores(c, heads, getScale().convertToDouble(), getCausal());
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
  Value scores = buildScores(c, heads, scale, getCausal());
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

// Logits, and dx and dw where something reads them.
int64_t HeadLossOp::getFlops() {
  auto weight = tensorType(getWeight());
  int64_t tokens = tensorType(getLabels()).getNumElements();
  int64_t products = 1 + !getDx().use_empty() + !getDw().use_empty();
  return products * 2 * tokens * weight.getNumElements();
}

int64_t HeadLossOp::getPointwise() {
  return 5 * tensorType(getLabels()).getNumElements() *
         tensorType(getWeight()).getDimSize(0);
}

} // namespace kiln
