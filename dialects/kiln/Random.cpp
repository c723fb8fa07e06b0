// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random numbers that do not depend on how the batch or a parameter is split,
// dropout and stochastic rounding.
#include "dialects/kiln/Answers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace kiln {

SmallVector<AffineMap> RandomOp::getLoopMaps() {
  MLIRContext *context = getContext();
  AffineExpr sample = getAffineDimExpr(0, context),
             element = getAffineDimExpr(1, context);
  return {AffineMap::get(2, 0, sample), AffineMap::get(2, 0, element),
          AffineMap::get(2, 0, context), AffineMap::get(2, 0, context),
          AffineMap::get(2, 0, {sample, element}, context)};
}

// First word of Philox4x32-10 of Salmon et al. (2011), as in runtime/random, on
// the counter (element, sample, step, high half of the seed).
static Value buildPhilox(OpBuilder &builder, Location loc, Value element,
                         Value sample, Value step, Value seed,
                         uint32_t stream) {
  Type word = element.getType(), wide = seed.getType();
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
  auto truncate = [&](Value value) -> Value {
    return arith::TruncIOp::create(builder, loc, word, value);
  };
  Value seedLow = truncate(seed), seedHigh = truncate(arith::ShRUIOp::create(
                                      builder, loc, seed, constant(wide, 32)));
  uint32_t offset = 0; // Of the round's key.
  Value counter[4] = {element, sample, step, seedHigh};
  for (int round = 0; round < 10; ++round) {
    auto [firstHigh, firstLow] = multiply(counter[0], 0xD2511F53);
    auto [secondHigh, secondLow] = multiply(counter[2], 0xCD9E8D57);
    Value key = arith::AddIOp::create(builder, loc, seedLow,
                                      constant(word, int32_t(offset)));
    Value next[4] = {exclusive(exclusive(secondHigh, counter[1]), key),
                     secondLow,
                     exclusive(exclusive(firstHigh, counter[3]),
                               constant(word, int32_t(stream))),
                     firstLow};
    std::copy(next, next + 4, counter);
    offset += 0x9E3779B9;
    stream += 0xBB67AE85;
  }
  return counter[0];
}

Value RandomOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  Type word = typeLike(x[0], builder.getI32Type());
  Value drawn =
      buildPhilox(builder, loc, x[1], x[0], x[2], x[3], uint32_t(getStream()));
  Value bits = arith::ShRUIOp::create(builder, loc, drawn,
                                      buildInteger(builder, loc, word, 8));
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

// The lower half of the bits of an f32 is its distance from the bf16 below, in
// magnitude: a random number of as many bits carries with that probability. NaN
// would carry into a number.
Value StochasticRoundOp::buildBody(OpBuilder &builder, Location loc,
                                   ValueRange x) {
  Type word = typeLike(x[0], builder.getI32Type());
  Value half = buildInteger(builder, loc, word, 16);
  Value drawn = arith::ShRUIOp::create(
      builder, loc,
      buildPhilox(builder, loc, x[2], x[1], x[3], x[4], uint32_t(getStream())),
      half);
  Value bits = arith::BitcastOp::create(builder, loc, word, x[0]);
  Value carried = arith::ShRUIOp::create(
      builder, loc, arith::AddIOp::create(builder, loc, bits, drawn), half);
  Type narrow = typeLike(x[0], builder.getBF16Type());
  Value rounded = arith::BitcastOp::create(
      builder, loc, narrow,
      arith::TruncIOp::create(builder, loc,
                              typeLike(x[0], builder.getI16Type()), carried));
  Value isNumber = arith::CmpFOp::create(builder, loc,
                                         arith::CmpFPredicate::ORD, x[0], x[0]);
  return arith::SelectOp::create(
      builder, loc, isNumber, rounded,
      arith::TruncFOp::create(builder, loc, narrow, x[0]));
}

LogicalResult DropoutOp::verify() {
  auto type = cast<RankedTensorType>(getOperand().getType());
  auto samples = cast<RankedTensorType>(getSamples().getType());
  if (type.getRank() < 1 || samples.getRank() != 1 ||
      samples.getDimSize(0) != type.getDimSize(0))
    return emitOpError("needs one index per sample of ")
           << type << ", found " << samples;
  if (getElements() &&
      cast<RankedTensorType>(getElements().getType()).getShape() !=
          type.getShape().drop_front())
    return emitOpError("needs one index per element of a sample of ")
           << type << ", found " << getElements().getType();
  double rate = getRate().convertToDouble();
  if (!(rate >= 0 && rate < 1))
    return emitOpError("has rate ") << rate << "; wanted at least 0, below 1";
  return success();
}

// Elements are indexed within their sample, so that neither the batch size nor
// its split matters.
Values DropoutOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  RankedTensorType type = tensorType(getOperand());
  int64_t batch = type.getDimSize(0), size = type.getNumElements() / batch;
  Value x = c.reshape(getOperand(), {batch, size});
  double rate = getRate().convertToDouble();
  Value step = c.convert(getStep(), builder.getI32Type());
  Value elements =
      getElements() ? c.reshape(getElements(), {size}) : c.iota(size);
  Value number = RandomOp::create(builder, getLoc(), x.getType(), getSamples(),
                                  elements, step, getSeed(), getStreamAttr());
  Value kept = c.select(c.compare(Predicate::ge, number, rate),
                        c.mul(x, 1 / (1 - rate)), c.fill(0, x));
  return {c.reshape(kept, type.getShape())};
}

// Linear in its operand: the gradient drops the same elements.
Values DropoutOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Values result(getNumOperands());
  result[0] = DropoutOp::create(builder, getLoc(), getType(), grads[0],
                                getSamples(), getStep(), getSeed(),
                                getElements(), getRateAttr(), getStreamAttr());
  return result;
}

std::string DropoutOp::getFactors() {
  std::string all = letters(getOperand());
  return all + "," + all.substr(0, 1) + ",," +
         (getElements() ? "," + all.substr(1) : "") + "->" + all;
}

// Local elements keep their index in the full sample, so the mask does not
// depend on the sharding.
void DropoutOp::place(OpBuilder &builder, PartPlace &place) {
  if (getElements())
    return; // They are sharded like the operand.
  Composer c(builder, getLoc());
  RankedTensorType type = tensorType(getOperand());
  std::string dims = letters(getOperand());
  if (llvm::none_of(StringRef(dims).drop_front(),
                    [&](char letter) { return place.isCut(letter); }))
    return;
  auto box =
      RankedTensorType::get(type.getShape().drop_front(), builder.getI32Type());
  std::string inSample = indexLetters(box.getRank());
  Value numbers;
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim > 0; --dim) {
    Value term =
        c.broadcast(inSample.substr(dim - 1, 1) + "->" + inSample,
                    c.mul(place.getNumbers(dims[dim]), double(stride)), box);
    numbers = numbers ? c.add(numbers, term) : term;
    stride *= place.getSize(dims[dim]);
  }
  getElementsMutable().assign(numbers);
}

} // namespace kiln
