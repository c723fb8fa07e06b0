// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vector-Jacobian products. The primal equation stands above each rule; g is
// the gradient of the result.
#include "dialects/kiln/Composer.h"

#include "llvm/ADT/StringExtras.h"

#include <numbers>

using namespace mlir;

namespace kiln {

using Gradients = SmallVector<Value>;

// y = -x
Gradients NegateOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc()).negate(grads[0])};
}

// y = e^x, so dx = g y
Gradients ExpOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc()).mul(grads[0], getResult())};
}

// y = log x, so dx = g / x
Gradients LogOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc()).div(grads[0], getOperand())};
}

// y = tanh x, so dx = g (1 - y^2)
Gradients TanhOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult();
  return {c.mul(grads[0], c.sub(c.fill(1, y), c.mul(y, y)))};
}

// y = erf x, so dx = g 2/sqrt(pi) e^(-x^2)
Gradients ErfOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getOperand();
  Value slope =
      c.mul(c.exp(c.negate(c.mul(x, x))), 2 * std::numbers::inv_sqrtpi);
  return {c.mul(grads[0], slope)};
}

// y = sqrt x, so dx = g / 2y
Gradients SqrtOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.div(c.mul(grads[0], 0.5), getResult())};
}

// y = x^(-1/2), so dx = -g y^3 / 2
Gradients RsqrtOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult();
  return {c.mul(grads[0], c.mul(c.mul(y, c.mul(y, y)), -0.5))};
}

// y = |x|, so dx = g sign(x), 0 at 0
Gradients AbsOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getOperand(), g = grads[0], zero = c.fill(0, x);
  Value negative =
      c.select(c.compare(Predicate::lt, x, zero), c.negate(g), zero);
  return {c.select(c.compare(Predicate::gt, x, zero), g, negative)};
}

// y = cos x, so dx = -g sin x
Gradients CosOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.negate(c.mul(grads[0], c.sin(getOperand())))};
}

// y = sin x, so dx = g cos x
Gradients SinOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.mul(grads[0], c.cos(getOperand()))};
}

// z = x + y
Gradients AddOp::buildVjp(OpBuilder &, ValueRange grads) {
  return {grads[0], grads[0]};
}

// z = x - y
Gradients SubOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {grads[0], Composer(builder, getLoc()).negate(grads[0])};
}

// z = x y
Gradients MulOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.mul(grads[0], getRhs()), c.mul(grads[0], getLhs())};
}

// z = x / y, so dx = g / y and dy = -g z / y
Gradients DivOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value dx = c.div(grads[0], getRhs());
  return {dx, c.negate(c.mul(dx, getResult()))};
}

// The gradient goes to the operand that was taken; to lhs where both are equal.
static Gradients routeGradient(Composer c, Predicate predicate, Value lhs,
                               Value rhs, Value grad) {
  Value isLhs = c.compare(predicate, lhs, rhs), zero = c.fill(0, grad);
  return {c.select(isLhs, grad, zero), c.select(isLhs, zero, grad)};
}

Gradients MaximumOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return routeGradient(Composer(builder, getLoc()), Predicate::ge, getLhs(),
                       getRhs(), grads[0]);
}

Gradients MinimumOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return routeGradient(Composer(builder, getLoc()), Predicate::le, getLhs(),
                       getRhs(), grads[0]);
}

Gradients SelectOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value g = grads[0], zero = c.fill(0, g);
  return {Value(), c.select(getCondition(), g, zero),
          c.select(getCondition(), zero, g)};
}

Gradients ConvertOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Type from = cast<RankedTensorType>(getOperand().getType()).getElementType();
  if (!isa<FloatType>(from) || !grads[0])
    return {Value()};
  return {Composer(builder, getLoc()).convert(grads[0], from)};
}

static std::string swapSides(StringRef equation) {
  auto [input, output] = equation.split("->");
  return (output + "->" + input).str();
}

Gradients BroadcastOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  if (tensorType(getOperand()) == tensorType(getResult()))
    return {grads[0]};
  return {Composer(builder, getLoc()).sum(swapSides(getEquation()), grads[0])};
}

Gradients TransposeOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc())
              .transpose(swapSides(getEquation()), grads[0])};
}

Gradients SumOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.broadcast(swapSides(getEquation()), grads[0],
                      tensorType(getOperand()))};
}

// Elements that share the maximum share its gradient.
Gradients MaxOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  RankedTensorType type = tensorType(getOperand());
  std::string back = swapSides(getEquation());
  Value isMax = c.compare(Predicate::eq, getOperand(),
                          c.broadcast(back, getResult(), type));
  Value mask = c.convert(isMax, type.getElementType());
  Value share = c.div(grads[0], c.sum(getEquation(), mask));
  return {c.mul(mask, c.broadcast(back, share, type))};
}

// z[C] = sum x[A] y[B], so dx[A] = sum g[C] y[B] and dy[B] = sum x[A] g[C]. An
// index that only one operand has was summed alone: its gradient is repeated
// along it.
static Value contractGradient(Composer c, StringRef first, Value x,
                              StringRef second, Value y, StringRef wanted,
                              RankedTensorType type) {
  std::string reached;
  for (char letter : wanted)
    if (first.contains(letter) || second.contains(letter))
      reached += letter;
  Value grad = c.contract((first + "," + second + "->" + reached).str(), x, y);
  if (reached == wanted)
    return grad;
  return c.broadcast((reached + "->" + wanted).str(), grad, type);
}

Gradients ContractOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  auto [inputs, output] = getEquation().split("->");
  auto [a, b] = inputs.split(',');
  return {contractGradient(c, output, grads[0], b, getRhs(), a,
                           tensorType(getLhs())),
          contractGradient(c, a, getLhs(), output, grads[0], b,
                           tensorType(getRhs()))};
}

Gradients ReshapeOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc())
              .reshape(grads[0], tensorType(getOperand()).getShape())};
}

// Zeros stand where nothing was taken.
Gradients SliceOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  RankedTensorType from = tensorType(getOperand());
  int64_t dimension = getDimension(), offset = getOffset();
  int64_t after = from.getDimSize(dimension) - offset -
                  tensorType(grads[0]).getDimSize(dimension);
  SmallVector<Value> parts;
  auto pad = [&](int64_t size) {
    if (size == 0)
      return;
    SmallVector<int64_t> shape(from.getShape());
    shape[dimension] = size;
    parts.push_back(
        c.zeros(RankedTensorType::get(shape, from.getElementType())));
  };
  pad(offset);
  parts.push_back(grads[0]);
  pad(after);
  return {parts.size() == 1 ? parts.front() : c.concatenate(parts, dimension)};
}

Gradients ConcatenateOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Gradients result;
  int64_t offset = 0;
  for (Value operand : getOperands()) {
    int64_t size = tensorType(operand).getDimSize(getDimension());
    result.push_back(c.slice(grads[0], getDimension(), offset, size));
    offset += size;
  }
  return result;
}

// y = max(x, 0)
Gradients ReluOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value g = grads[0];
  return {c.select(c.compare(Predicate::gt, getOperand(), 0), g, c.fill(0, g))};
}

// y = x P(x). Exact: P = (1 + erf(x/sqrt 2)) / 2 and P' = e^(-x^2/2) / sqrt(2
// pi). Approximate: P = (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715
// x^3), P' = (1 - tanh^2 u) u' / 2.
Gradients GeluOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getOperand();
  if (!getTanh()) {
    Value cumulative =
        c.mul(c.add(c.erf(c.mul(x, std::numbers::sqrt2 / 2)), 1), 0.5);
    double density = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    Value slope = c.mul(c.exp(c.mul(c.mul(x, x), -0.5)), density);
    return {c.mul(grads[0], c.add(cumulative, c.mul(x, slope)))};
  }
  double root = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  Value square = c.mul(x, x);
  Value t = c.tanh(c.mul(x, c.add(c.mul(square, 0.044715 * root), root)));
  Value cumulative = c.mul(c.add(t, 1), 0.5);
  Value inner = c.add(c.mul(square, 3 * 0.044715 * root), root);
  Value slope = c.mul(c.mul(c.sub(c.fill(1, x), c.mul(t, t)), 0.5), inner);
  return {c.mul(grads[0], c.add(cumulative, c.mul(x, slope)))};
}

// y = table[ids]
Gradients EmbeddingOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Gradients result(getNumOperands());
  result[0] = EmbeddingGradOp::create(builder, getLoc(), getTable().getType(),
                                      getIds(), grads[0], getFirst());
  return result;
}

// y = n w + b with n = (x - mean) rstd. With h = g w:
// dx = rstd (h - mean(h) - n mean(h n)), dw = sum g n, db = sum g.
Gradients LayerNormOp::buildVjp(OpBuilder &builder, ValueRange grads) {
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
  Gradients result = {c.mul(centred, c.spreadRows(getRstd(), x)),
                      c.sumColumns(c.mul(g, n))};
  if (getShift())
    result.push_back(c.sumColumns(g));
  return result;
}

// y = softmax x, so dx = y (g - sum(g y))
Gradients SoftmaxOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult(), g = grads[0];
  return {c.mul(y, c.sub(g, c.spreadRows(c.sumRows(c.mul(g, y)), y)))};
}

// total = sum of -log softmax(x)[label], so dx = g (softmax(x) - onehot(label))
// in rows that have a label.
Gradients SoftmaxCrossEntropyOp::buildVjp(OpBuilder &builder,
                                          ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getLogits();
  Value softmax = SoftmaxOp::create(builder, getLoc(), x);
  Value classes = c.spreadColumns(c.iota(tensorType(x).getShape().back()), x);
  Value labels = c.convert(getLabels(), builder.getI32Type());
  Value isLabel = c.compare(Predicate::eq, c.spreadRows(labels, x), classes);
  Value hot = c.convert(isLabel, tensorType(x).getElementType());
  Value hasLabel = c.spreadRows(c.sumRows(hot), x);
  Value difference = c.sub(c.mul(softmax, hasLabel), hot);
  return {c.mul(difference, c.spread(grads[0], x)), Value()};
}

// The op has made the gradients of its total already.
Gradients HeadLossOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  bool isOfTotal = grads[0] && llvm::none_of(grads.drop_front(), [](Value g) {
                     return bool(g); // Counts and gradients have none.
                   });
  if (!isOfTotal || !hasGradients())
    return {};
  Value dx = getGradients()[0], dw = getGradients()[1];
  return {c.mul(dx, c.spread(grads[0], dx)), c.mul(dw, c.spread(grads[0], dw)),
          Value()};
}

Gradients AttentionOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  if (!grads[0] || grads[1])
    return {}; // The log-sum-exp is kept for the gradient only.
  Gradients result = {AttentionGradOp::create(
      builder, getLoc(), getPacked().getType(), getPacked(), getResult(),
      getLse(), grads[0], getLengths(), getScaleAttr(), getCausalAttr())};
  if (getLengths())
    result.push_back(Value());
  return result;
}

// Linear in its operand: the same elements fall out of the gradient.
Gradients DropoutOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Gradients result(getNumOperands());
  result[0] = DropoutOp::create(builder, getLoc(), getType(), grads[0],
                                getSamples(), getStep(), getElements(),
                                getRateAttr(), getSeedAttr(), getStreamAttr());
  return result;
}

Gradients BatchNormOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  if (!grads[0] || grads[1] || grads[2])
    return {}; // Statistics are not differentiated.
  auto grad = BatchNormGradOp::create(
      builder, getLoc(), getOperand().getType(), getScale().getType(),
      getShift().getType(), getOperand(), getScale(), getMean(), getVariance(),
      grads[0], getGroupAttr(), getEpsilonAttr());
  return {grad.getDoperand(), grad.getDscale(), grad.getDshift()};
}

} // namespace kiln
