// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/ExpandConversions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace kiln::cpu {

namespace {

/// Arithmetic on the bits of floats, scalars and vectors alike.
class BitWriter {
public:
  BitWriter(OpBuilder &builder, Location loc, Type like)
      : builder(builder), loc(loc), like(like),
        word(typeOf(builder.getI32Type())), half(typeOf(builder.getI16Type())),
        real(typeOf(builder.getF32Type())) {}

  Type typeOf(Type element) const {
    auto vector = dyn_cast<VectorType>(like);
    return vector ? Type(vector.clone(element)) : element;
  }
  Value constant(uint32_t value) {
    TypedAttr number = builder.getI32IntegerAttr(int32_t(value));
    if (auto vector = dyn_cast<VectorType>(word))
      number = DenseElementsAttr::get(vector, Attribute(number));
    return arith::ConstantOp::create(builder, loc, number);
  }
  Value add(Value a, Value b) {
    return arith::AddIOp::create(builder, loc, a, b);
  }
  Value add(Value a, uint32_t b) { return add(a, constant(b)); }
  Value either(Value a, Value b) {
    return arith::OrIOp::create(builder, loc, a, b);
  }
  Value mask(Value a, uint32_t b) {
    return arith::AndIOp::create(builder, loc, a, constant(b));
  }
  Value shiftRight(Value a, uint32_t bits) {
    return arith::ShRUIOp::create(builder, loc, a, constant(bits));
  }
  Value shiftLeft(Value a, uint32_t bits) {
    return arith::ShLIOp::create(builder, loc, a, constant(bits));
  }
  Value compare(arith::CmpIPredicate predicate, Value a, uint32_t b) {
    return arith::CmpIOp::create(builder, loc, predicate, a, constant(b));
  }
  Value select(Value condition, Value a, Value b) {
    return arith::SelectOp::create(builder, loc, condition, a, b);
  }
  Value toReal(Value bits) {
    return arith::BitcastOp::create(builder, loc, real, bits);
  }
  Value toBits(Value value) {
    return arith::BitcastOp::create(builder, loc, word, value);
  }
  /// The lower half of each word as a float of 16 bits.
  Value toNarrow(Value bits, Type element) {
    Value narrow = arith::TruncIOp::create(builder, loc, half, bits);
    return arith::BitcastOp::create(builder, loc, typeOf(element), narrow);
  }
  Value fromNarrow(Value value) {
    Value bits = arith::BitcastOp::create(builder, loc, half, value);
    return arith::ExtUIOp::create(builder, loc, word, bits);
  }

  OpBuilder &builder;
  Location loc;
  Type like, word, half, real;
};

} // namespace

// bf16 is the upper half of an f32.
static Value narrowToBf16(BitWriter &write, Value x, Type element) {
  Value bits = write.toBits(x), upper = write.shiftRight(bits, 16);
  Value isOdd = write.mask(upper, 1);
  Value rounded =
      write.shiftRight(write.add(bits, write.add(isOdd, 0x7fff)), 16);
  // Rounding could turn a NaN into infinity.
  Value quiet = write.either(upper, write.constant(0x40));
  Value isNan = arith::CmpFOp::create(write.builder, write.loc,
                                      arith::CmpFPredicate::UNO, x, x);
  return write.toNarrow(write.select(isNan, quiet, rounded), element);
}

static Value widenFromBf16(BitWriter &write, Value x) {
  return write.toReal(write.shiftLeft(write.fromNarrow(x), 16));
}

// The exponent of f16 has 5 bits, biased by 15; that of f32 is biased by 127.
static Value narrowToF16(BitWriter &write, Value x, Type element) {
  constexpr uint32_t kInfinity = 0x7f800000, kOverflow = (127 + 16) << 23,
                     kLeastNormal = (127 - 14) << 23;
  // Added to a small number, its unit in the last place is that of denormals.
  constexpr uint32_t kDenormal = (127 - 15 + 23 - 10 + 1) << 23;
  using Predicate = arith::CmpIPredicate;
  Value bits = write.toBits(x), size = write.mask(bits, 0x7fffffff);
  Value sign = write.shiftRight(write.mask(bits, 0x80000000), 16);
  Value isOdd = write.mask(write.shiftRight(size, 13), 1);
  Value normal = write.add(write.add(size, isOdd),
                           uint32_t(int32_t(15 - 127) * (1 << 23)) + 0xfff);
  normal = write.shiftRight(normal, 13);
  Value shifted =
      arith::AddFOp::create(write.builder, write.loc, write.toReal(size),
                            write.toReal(write.constant(kDenormal)));
  Value denormal = write.add(write.toBits(shifted), -kDenormal);
  Value special = write.select(write.compare(Predicate::ugt, size, kInfinity),
                               write.constant(0x7e00), write.constant(0x7c00));
  Value result = write.select(write.compare(Predicate::ult, size, kLeastNormal),
                              denormal, normal);
  result = write.select(write.compare(Predicate::uge, size, kOverflow), special,
                        result);
  return write.toNarrow(write.either(result, sign), element);
}

static Value widenFromF16(BitWriter &write, Value x) {
  constexpr uint32_t kExponent = 0x7c00 << 13, kLeastNormal = (127 - 14) << 23;
  using Predicate = arith::CmpIPredicate;
  Value bits = write.fromNarrow(x);
  Value sign = write.shiftLeft(write.mask(bits, 0x8000), 16);
  Value size = write.shiftLeft(write.mask(bits, 0x7fff), 13);
  Value exponent = write.mask(size, kExponent);
  Value normal = write.add(size, (127 - 15) << 23);
  Value special = write.add(normal, (128 - 16) << 23);
  // The fraction of a denormal, below a leading 1 that is taken off again.
  Value denormal = write.toBits(arith::SubFOp::create(
      write.builder, write.loc, write.toReal(write.add(normal, 1 << 23)),
      write.toReal(write.constant(kLeastNormal))));
  Value result =
      write.select(write.compare(Predicate::eq, exponent, 0), denormal, normal);
  result = write.select(write.compare(Predicate::eq, exponent, kExponent),
                        special, result);
  return write.toReal(write.either(result, sign));
}

namespace {

template <typename Op> struct ExpandPattern : OpRewritePattern<Op> {
  ExpandPattern(MLIRContext *context, bool isBf16)
      : OpRewritePattern<Op>(context), isBf16(isBf16) {}

  LogicalResult matchAndRewrite(Op op,
                                PatternRewriter &rewriter) const override {
    constexpr bool isNarrowing = std::is_same_v<Op, arith::TruncFOp>;
    Type from = getElementTypeOrSelf(op.getIn().getType()),
         to = getElementTypeOrSelf(op.getType());
    Type narrow = isNarrowing ? to : from, wide = isNarrowing ? from : to;
    if (!wide.isF32() || !(isBf16 ? narrow.isBF16() : narrow.isF16()))
      return failure();
    BitWriter write(rewriter, op.getLoc(), op.getType());
    Value result;
    if constexpr (isNarrowing)
      result = isBf16 ? narrowToBf16(write, op.getIn(), narrow)
                      : narrowToF16(write, op.getIn(), narrow);
    else
      result = isBf16 ? widenFromBf16(write, op.getIn())
                      : widenFromF16(write, op.getIn());
    rewriter.replaceOp(op, result);
    return success();
  }

  bool isBf16;
};

} // namespace

// AVX512-BF16 could narrow in one instruction, but takes denormals for zero.
void addConversionPatterns(RewritePatternSet &patterns,
                           const CpuTarget &target) {
  auto add = [&](bool isBf16) {
    patterns.add<ExpandPattern<arith::TruncFOp>, ExpandPattern<arith::ExtFOp>>(
        patterns.getContext(), isBf16);
  };
  add(/*isBf16=*/true);
  if (!target.hasFeature("f16c"))
    add(/*isBf16=*/false);
}

} // namespace kiln::cpu
