// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elementwise ops.
#include "dialects/kiln/Answers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

#include <numbers>

using namespace mlir;

namespace kiln {

#define KILN_BODY(op, arithmetic)                                              \
  Value op::buildBody(OpBuilder &builder, Location loc, ValueRange x) {        \
    return arithmetic::create(builder, loc, x);                                \
  }
KILN_BODY(NegateOp, arith::NegFOp)
KILN_BODY(ExpOp, math::ExpOp)
KILN_BODY(LogOp, math::LogOp)
KILN_BODY(TanhOp, math::TanhOp)
KILN_BODY(ErfOp, math::ErfOp)
KILN_BODY(SqrtOp, math::SqrtOp)
KILN_BODY(AbsOp, math::AbsFOp)
KILN_BODY(CosOp, math::CosOp)
KILN_BODY(SinOp, math::SinOp)
KILN_BODY(DivOp, arith::DivFOp)
KILN_BODY(MaximumOp, arith::MaximumFOp)
KILN_BODY(MinimumOp, arith::MinimumFOp)
KILN_BODY(SelectOp, arith::SelectOp)
KILN_BODY(QuotientOp, arith::DivUIOp)
#undef KILN_BODY

#define KILN_NUMBER_BODY(op, floats, integers)                                 \
  Value op::buildBody(OpBuilder &builder, Location loc, ValueRange x) {        \
    if (isa<FloatType>(getElementTypeOrSelf(x[0].getType())))                  \
      return floats::create(builder, loc, x);                                  \
    return integers::create(builder, loc, x);                                  \
  }
KILN_NUMBER_BODY(AddOp, arith::AddFOp, arith::AddIOp)
KILN_NUMBER_BODY(SubOp, arith::SubFOp, arith::SubIOp)
KILN_NUMBER_BODY(MulOp, arith::MulFOp, arith::MulIOp)
#undef KILN_NUMBER_BODY

// y = -x
Values NegateOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc()).negate(grads[0])};
}

// y = e^x, so dx = g y
Values ExpOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc()).mul(grads[0], getResult())};
}

// y = log x, so dx = g / x
Values LogOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc()).div(grads[0], getOperand())};
}

// y = tanh x, so dx = g (1 - y^2)
Values TanhOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult();
  return {c.mul(grads[0], c.sub(c.fill(1, y), c.mul(y, y)))};
}

// y = erf x, so dx = g 2/sqrt(pi) e^(-x^2)
Values ErfOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getOperand();
  Value slope =
      c.mul(c.exp(c.negate(c.mul(x, x))), 2 * std::numbers::inv_sqrtpi);
  return {c.mul(grads[0], slope)};
}

// y = sqrt x, so dx = g / 2y
Values SqrtOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.div(c.mul(grads[0], 0.5), getResult())};
}

// Not math.rsqrt: its approximation turns 0 into NaN, where 1/sqrt gives
// infinity.
// By tanh, which is finite for every x: 1 / (1 + exp(-x)) = (1 + tanh(x/2)) / 2
Value SigmoidOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type type = x[0].getType();
  Attribute half = builder.getFloatAttr(getElementTypeOrSelf(type), 0.5);
  if (auto vector = dyn_cast<VectorType>(type))
    half = DenseElementsAttr::get(vector, half);
  Value factor = arith::ConstantOp::create(builder, loc, cast<TypedAttr>(half));
  auto scale = [&](Value value) {
    return arith::MulFOp::create(builder, loc, value, factor);
  };
  Value bend = math::TanhOp::create(builder, loc, scale(x[0]));
  return arith::AddFOp::create(builder, loc, scale(bend), factor);
}

// y = sigmoid x, so dx = g y (1 - y)
Values SigmoidOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult();
  return {c.mul(grads[0], c.sub(y, c.mul(y, y)))};
}

Value RsqrtOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type type = x[0].getType();
  Value one = arith::ConstantOp::create(builder, loc, builder.getOneAttr(type));
  return arith::DivFOp::create(builder, loc, one,
                               math::SqrtOp::create(builder, loc, x[0]));
}

// y = x^(-1/2), so dx = -g y^3 / 2
Values RsqrtOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult();
  return {c.mul(grads[0], c.mul(c.mul(y, c.mul(y, y)), -0.5))};
}

// y = |x|, so dx = g sign(x), 0 at 0
Values AbsOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getOperand(), g = grads[0], zero = c.fill(0, x);
  Value negative =
      c.select(c.compare(Predicate::lt, x, zero), c.negate(g), zero);
  return {c.select(c.compare(Predicate::gt, x, zero), g, negative)};
}

// y = cos x, so dx = -g sin x
Values CosOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.negate(c.mul(grads[0], c.sin(getOperand())))};
}

// y = sin x, so dx = g cos x
Values SinOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.mul(grads[0], c.cos(getOperand()))};
}

// z = x + y
Values AddOp::buildVjp(OpBuilder &, ValueRange grads) {
  return {grads[0], grads[0]};
}

OperandGroups AddOp::getLinearGroups() { return {{0, 1}}; }

// z = x - y
Values SubOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {grads[0], Composer(builder, getLoc()).negate(grads[0])};
}

OperandGroups SubOp::getLinearGroups() { return {{0, 1}}; }

// z = x y
Values MulOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.mul(grads[0], getRhs()), c.mul(grads[0], getLhs())};
}

OperandGroups MulOp::getLinearGroups() { return {{0}, {1}}; }

// z = x / y, so dx = g / y and dy = -g z / y
Values DivOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value dx = c.div(grads[0], getRhs());
  return {dx, c.negate(c.mul(dx, getResult()))};
}

// The gradient goes to the selected operand; to lhs where both are equal.
static Values routeGradient(Composer c, Predicate predicate, Value lhs,
                            Value rhs, Value grad) {
  Value isLhs = c.compare(predicate, lhs, rhs), zero = c.fill(0, grad);
  return {c.select(isLhs, grad, zero), c.select(isLhs, zero, grad)};
}

Values MaximumOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return routeGradient(Composer(builder, getLoc()), Predicate::ge, getLhs(),
                       getRhs(), grads[0]);
}

Values MinimumOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return routeGradient(Composer(builder, getLoc()), Predicate::le, getLhs(),
                       getRhs(), grads[0]);
}

Value CompareOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  if (isa<FloatType>(getElementTypeOrSelf(x[0].getType()))) {
    static constexpr arith::CmpFPredicate predicates[] = {
        arith::CmpFPredicate::OEQ, arith::CmpFPredicate::UNE,
        arith::CmpFPredicate::OLT, arith::CmpFPredicate::OLE,
        arith::CmpFPredicate::OGT, arith::CmpFPredicate::OGE};
    return arith::CmpFOp::create(
        builder, loc, predicates[unsigned(getPredicate())], x[0], x[1]);
  }
  static constexpr arith::CmpIPredicate predicates[] = {
      arith::CmpIPredicate::eq,  arith::CmpIPredicate::ne,
      arith::CmpIPredicate::slt, arith::CmpIPredicate::sle,
      arith::CmpIPredicate::sgt, arith::CmpIPredicate::sge};
  return arith::CmpIOp::create(
      builder, loc, predicates[unsigned(getPredicate())], x[0], x[1]);
}

Values SelectOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value g = grads[0], zero = c.fill(0, g);
  return {Value(), c.select(getCondition(), g, zero),
          c.select(getCondition(), zero, g)};
}

Value ConvertOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type to = getType().getElementType();
  Type from = getElementTypeOrSelf(x[0].getType());
  if (auto vector = dyn_cast<VectorType>(x[0].getType()))
    to = vector.clone(to);
  Type element = getElementTypeOrSelf(to);
  if (from == element)
    return x[0];
  if (isa<FloatType>(from) && isa<FloatType>(element)) {
    if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
      return arith::ExtFOp::create(builder, loc, to, x[0]);
    return arith::TruncFOp::create(builder, loc, to, x[0]);
  }
  if (isa<FloatType>(element)) {
    if (from.isInteger(1))
      return arith::UIToFPOp::create(builder, loc, to, x[0]);
    return arith::SIToFPOp::create(builder, loc, to, x[0]);
  }
  if (isa<FloatType>(from))
    return arith::FPToSIOp::create(builder, loc, to, x[0]);
  if (from.getIntOrFloatBitWidth() > element.getIntOrFloatBitWidth())
    return arith::TruncIOp::create(builder, loc, to, x[0]);
  if (from.isInteger(1))
    return arith::ExtUIOp::create(builder, loc, to, x[0]);
  return arith::ExtSIOp::create(builder, loc, to, x[0]);
}

// The gradient of a value of 16 bits is rounded once all its terms are known.
Values ConvertOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Type from = tensorType(getOperand()).getElementType();
  if (!isa<FloatType>(from) || !grads[0])
    return {Value()};
  return {
      Composer(builder, getLoc()).convert(grads[0], getAccumulatorType(from))};
}

// Rounding to 16 bits, and to integers, is not linear.
OperandGroups ConvertOp::getLinearGroups() {
  Type to = tensorType(getResult()).getElementType();
  if (to.isF32() || to.isF64())
    return {{0}};
  return {};
}

// Widened and rounded again, 16 bits are as they were.
OpFoldResult ConvertOp::fold(FoldAdaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  auto widening = getOperand().getDefiningOp<ConvertOp>();
  if (widening && isNarrow(getElementTypeOrSelf(getType())) &&
      widening.getOperand().getType() == getType())
    return widening.getOperand();
  return {};
}

LogicalResult ConvertOp::verify() {
  Type from = getElementTypeOrSelf(getOperand().getType()),
       to = getElementTypeOrSelf(getResult().getType());
  auto needsSteps = [](Type narrow, Type other) {
    return isNarrow(narrow) && narrow != other && !other.isF32();
  };
  if (needsSteps(from, to) || needsSteps(to, from))
    return emitOpError("converts elements of type ")
           << from << " to " << to << "; wanted f32 in between";
  return success();
}

LogicalResult ConstantOp::verify() {
  if (cast<RankedTensorType>(getType()).getRank() != 0)
    return emitOpError("makes a scalar, but its type is ") << getType();
  return success();
}

Value ConstantOp::buildBody(OpBuilder &builder, Location loc, ValueRange) {
  Type type = cast<RankedTensorType>(getType()).getElementType();
  double value = getValue().convertToDouble();
  if (isa<FloatType>(type))
    return arith::ConstantOp::create(builder, loc,
                                     builder.getFloatAttr(type, value));
  return arith::ConstantOp::create(
      builder, loc, builder.getIntegerAttr(type, int64_t(value)));
}

Values ReluOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  return {c.maximum(getOperand(), c.fill(0, getOperand()))};
}

// y = max(x, 0)
Values ReluOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value g = grads[0];
  return {c.select(c.compare(Predicate::gt, getOperand(), 0), g, c.fill(0, g))};
}

static std::string unaryFactors(Value value) {
  return letters(value) + "->" + letters(value);
}

std::string ReluOp::getFactors() { return unaryFactors(getOperand()); }

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

// y = x P(x). Exact: P = (1 + erf(x/sqrt 2)) / 2 and P' = e^(-x^2/2) / sqrt(2
// pi). Approximate: P = (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715
// x^3), P' = (1 - tanh^2 u) u' / 2.
Values GeluOp::buildVjp(OpBuilder &builder, ValueRange grads) {
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

std::string GeluOp::getFactors() { return unaryFactors(getOperand()); }

} // namespace kiln
