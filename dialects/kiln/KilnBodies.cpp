// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What Structured ops compute at one point, on scalars and on vectors alike.
#include "dialects/kiln/Kiln.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

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
KILN_BODY(ContractOp, arith::MulFOp)
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

// Not math.rsqrt: its approximation turns 0 into NaN, where 1/sqrt gives
// infinity.
Value RsqrtOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type type = x[0].getType();
  Value one = arith::ConstantOp::create(builder, loc, builder.getOneAttr(type));
  return arith::DivFOp::create(builder, loc, one,
                               math::SqrtOp::create(builder, loc, x[0]));
}

#define KILN_BODY_COPY(op)                                                     \
  Value op::buildBody(OpBuilder &, Location, ValueRange x) { return x[0]; }
KILN_BODY_COPY(BroadcastOp)
KILN_BODY_COPY(TransposeOp)
KILN_BODY_COPY(SumOp)
KILN_BODY_COPY(MaxOp)
#undef KILN_BODY_COPY

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

// A scalar of type `element`, or a vector as long as `x`.
static Type typeLike(Value x, Type element) {
  auto vector = dyn_cast<VectorType>(x.getType());
  return vector ? Type(vector.clone(element)) : element;
}

static Value buildInteger(OpBuilder &builder, Location loc, Type type,
                          int64_t value) {
  TypedAttr number = builder.getIntegerAttr(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    number = DenseElementsAttr::get(vector, Attribute(number));
  return arith::ConstantOp::create(builder, loc, number);
}

// Hardware that knows bf16 is rare, and calls into a library are slow: bf16 is
// the upper half of an f32, rounded to nearest, ties to even.
static Value buildNarrow(OpBuilder &builder, Location loc, Value x) {
  Type word = typeLike(x, builder.getI32Type());
  auto constant = [&](int64_t value) {
    return buildInteger(builder, loc, word, value);
  };
  Value bits = arith::BitcastOp::create(builder, loc, word, x);
  Value upper = arith::ShRUIOp::create(builder, loc, bits, constant(16));
  Value isOdd = arith::AndIOp::create(builder, loc, upper, constant(1));
  Value bias = arith::AddIOp::create(builder, loc, isOdd, constant(0x7fff));
  Value rounded = arith::ShRUIOp::create(
      builder, loc, arith::AddIOp::create(builder, loc, bits, bias),
      constant(16));
  // Rounding could turn a NaN into infinity: it is made quiet instead.
  Value quiet = arith::OrIOp::create(builder, loc, upper, constant(0x40));
  Value isNan =
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::UNO, x, x);
  Value chosen = arith::SelectOp::create(builder, loc, isNan, quiet, rounded);
  Value half = arith::TruncIOp::create(
      builder, loc, typeLike(x, builder.getI16Type()), chosen);
  return arith::BitcastOp::create(builder, loc,
                                  typeLike(x, builder.getBF16Type()), half);
}

static Value buildWiden(OpBuilder &builder, Location loc, Value x, Type to) {
  Type word = typeLike(x, builder.getI32Type());
  Value half = arith::BitcastOp::create(builder, loc,
                                        typeLike(x, builder.getI16Type()), x);
  Value bits = arith::ShLIOp::create(
      builder, loc, arith::ExtUIOp::create(builder, loc, word, half),
      buildInteger(builder, loc, word, 16));
  return arith::BitcastOp::create(builder, loc, to, bits);
}

Value ConvertOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type to = getType().getElementType();
  Type from = getElementTypeOrSelf(x[0].getType());
  if (auto vector = dyn_cast<VectorType>(x[0].getType()))
    to = vector.clone(to);
  Type element = getElementTypeOrSelf(to);
  if (from == element)
    return x[0];
  if (from.isF32() && element.isBF16())
    return buildNarrow(builder, loc, x[0]);
  if (from.isBF16() && element.isF32())
    return buildWiden(builder, loc, x[0], to);
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

Value ConstantOp::buildBody(OpBuilder &builder, Location loc, ValueRange) {
  Type type = cast<RankedTensorType>(getType()).getElementType();
  double value = getValue().convertToDouble();
  if (isa<FloatType>(type))
    return arith::ConstantOp::create(builder, loc,
                                     builder.getFloatAttr(type, value));
  return arith::ConstantOp::create(
      builder, loc, builder.getIntegerAttr(type, int64_t(value)));
}

// Philox4x32-10 of Salmon et al. (2011), as in runtime/random, on the counter
// (element, sample, step, high half of the seed).
Value RandomOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type word = typeLike(x[0], builder.getI32Type()),
       wide = typeLike(x[0], builder.getI64Type());
  auto constant = [&](Type type, int64_t value) {
    return buildInteger(builder, loc, type, value);
  };
  auto exclusive = [&](Value a, Value b) -> Value {
    return arith::XOrIOp::create(builder, loc, a, b);
  };
  auto multiply = [&](Value a, uint32_t factor) {
    Value product = arith::MulIOp::create(
        builder, loc, arith::ExtUIOp::create(builder, loc, wide, a),
        constant(wide, factor));
    Value high =
        arith::ShRUIOp::create(builder, loc, product, constant(wide, 32));
    return std::pair<Value, Value>(
        arith::TruncIOp::create(builder, loc, word, high),
        arith::TruncIOp::create(builder, loc, word, product));
  };
  uint32_t key[2] = {uint32_t(getSeed()), uint32_t(getStream())};
  Value counter[4] = {x[1], x[0], x[2],
                      constant(word, int32_t(uint64_t(getSeed()) >> 32))};
  for (int round = 0; round < 10; ++round) {
    auto [firstHigh, firstLow] = multiply(counter[0], 0xD2511F53);
    auto [secondHigh, secondLow] = multiply(counter[2], 0xCD9E8D57);
    Value next[4] = {exclusive(exclusive(secondHigh, counter[1]),
                               constant(word, int32_t(key[0]))),
                     secondLow,
                     exclusive(exclusive(firstHigh, counter[3]),
                               constant(word, int32_t(key[1]))),
                     firstLow};
    std::copy(next, next + 4, counter);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  Value bits =
      arith::ShRUIOp::create(builder, loc, counter[0], constant(word, 8));
  Type real = typeLike(x[0], getElementTypeOrSelf(getType()));
  Value number = arith::UIToFPOp::create(builder, loc, real, bits);
  Attribute unit =
      builder.getFloatAttr(getElementTypeOrSelf(getType()), 0x1p-24);
  if (auto vector = dyn_cast<VectorType>(real))
    unit = DenseElementsAttr::get(vector, unit);
  return arith::MulFOp::create(
      builder, loc, number,
      arith::ConstantOp::create(builder, loc, cast<TypedAttr>(unit)));
}

} // namespace kiln
