// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention: its definition, gradient and cost.
#include "dialects/kiln/Answers.h"

using namespace mlir;

namespace kiln {

static LogicalResult verifyAttention(Operation *op, RankedTensorType packed,
                                     Type result, Type lse, Value lengths) {
  if (packed.getRank() != 5 || packed.getDimSize(2) != 3)
    return op->emitOpError("needs queries, keys and values as [batch, "
                           "sequence, 3, heads, width], found ")
           << packed;
  ArrayRef<int64_t> shape = packed.getShape();
  auto wanted = RankedTensorType::get({shape[0], shape[1], shape[3], shape[4]},
                                      getElementTypeOrSelf(result));
  auto wantedLse = RankedTensorType::get({shape[0], shape[3], shape[1]},
                                         getElementTypeOrSelf(lse));
  if (result != wanted || lse != wantedLse)
    return op->emitOpError("must have results ")
           << wanted << " and " << wantedLse << ", found " << result << " and "
           << lse;
  if (lengths && cast<RankedTensorType>(lengths.getType()) !=
                     RankedTensorType::get(
                         shape[0], IntegerType::get(op->getContext(), 32)))
    return op->emitOpError("needs one i32 length per sample of ")
           << packed << ", found " << lengths.getType();
  return success();
}

bool AttentionOp::isStatistic(Value value) { return value == getLse(); }

LogicalResult AttentionOp::verify() {
  return verifyAttention(*this, cast<RankedTensorType>(getPacked().getType()),
                         getResult().getType(), getLse().getType(),
                         getLengths());
}

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
  Value weights = c.convertLike(c.div(e, c.spreadRows(sum, e)), heads.values);
  Value result = c.contract("bhst,bthd->bshd", weights, heads.values);
  return {c.convertLike(result, getResult()), c.add(greatest, c.log(sum))};
}

// `count` products per head, each over all unmasked pairs of a query and a key:
// a causal row s has s + 1. For every pair also scale, subtract, exponential,
// sum and divide.
static Work getAttentionWork(Operation *op, RankedTensorType packed,
                             bool isCausal, unsigned count) {
  ArrayRef<int64_t> shape = packed.getShape();
  int64_t sequence = shape[1], heads = shape[0] * shape[3];
  MatrixWork product(heads, sequence, sequence, /*k=*/shape[4],
                     packed.getElementType());
  if (isCausal)
    product.computed = sequence * (sequence + 1) / 2;
  Work work;
  work.products.assign(count, product);
  work.pointwise = 5 * heads * product.computed;
  work.bytes = getStreamedBytes(op);
  return work;
}

// Scores and result.
Work AttentionOp::getWork() {
  return getAttentionWork(*this, tensorType(getPacked()), getCausal(), 2);
}

Values AttentionOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  if (!grads[0] || grads[1])
    return {}; // The log-sum-exp is kept for the gradient only.
  Composer c(builder, getLoc());
  Values result = {AttentionGradOp::create(
      builder, getLoc(), accumulatorType(getPacked()), getPacked(),
      c.convertLike(getResult(), getPacked()), getLse(),
      c.convertLike(grads[0], getPacked()), getLengths(), getScaleAttr(),
      getCausalAttr())};
  if (getLengths())
    result.push_back(Value());
  return result;
}

std::string AttentionOp::getFactors() {
  return getLengths() ? "bSPhD,b->bShD,bhS" : "bSPhD->bShD,bhS";
}

bool AttentionGradOp::isStatistic(Value value) { return value == getLse(); }

LogicalResult AttentionGradOp::verify() {
  if (!haveSameShape(getDpacked(), getPacked()) ||
      !haveSameShape(getGrad(), getResult()))
    return emitOpError(
               "must have gradients of the shapes of packed and result, found ")
           << getDpacked().getType() << " and " << getGrad().getType();
  return verifyAttention(*this, cast<RankedTensorType>(getPacked().getType()),
                         getResult().getType(), getLse().getType(),
                         getLengths());
}

// With P = exp(scores - lse): dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO
// O)), dQ = dS K scale, dK = dS^T Q scale.
Values AttentionGradOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Heads heads = unpack(c, getPacked());
  double scale = getScale().convertToDouble();
  Value scores = buildScores(c, heads, scale, getCausal(), getLengths());
  Value weights = c.exp(c.sub(scores, c.spreadRows(getLse(), scores)));
  Value dValues = c.contract("bhst,bshd->bthd",
                             c.convertLike(weights, heads.values), getGrad());
  Value dWeights = c.contract("bshd,bthd->bhst", getGrad(), heads.values);
  Value delta = c.contract("bshd,bshd->bhs", getGrad(), getResult());
  Value dScores = c.convertLike(
      c.mul(c.mul(weights, c.sub(dWeights, c.spreadRows(delta, dWeights))),
            scale),
      heads.values);
  Value dQueries = c.contract("bhst,bthd->bshd", dScores, heads.keys);
  Value dKeys = c.contract("bhst,bshd->bthd", dScores, heads.queries);
  SmallVector<Value> parts;
  ArrayRef<int64_t> shape = tensorType(getPacked()).getShape();
  for (Value part : {dQueries, dKeys, dValues})
    parts.push_back(c.reshape(c.convertLike(part, getDpacked()),
                              {shape[0], shape[1], 1, shape[3], shape[4]}));
  return {c.concatenate(parts, 2)};
}

// Rematerialised scores, dV, dP, dQ and dK.
Work AttentionGradOp::getWork() {
  return getAttentionWork(*this, tensorType(getPacked()), getCausal(), 5);
}

std::string AttentionGradOp::getFactors() {
  return getLengths() ? "bSPhD,bShD,bhS,bShD,b->bSPhD"
                      : "bSPhD,bShD,bhS,bShD->bSPhD";
}

} // namespace kiln
