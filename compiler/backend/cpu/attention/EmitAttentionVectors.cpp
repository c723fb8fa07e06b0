// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/attention/EmitAttentionVectors.h"
#include "compiler/backend/cpu/ObjectCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;

namespace kiln::cpu {

static Attribute disableUnrolling(MLIRContext *context) {
  auto yes = BoolAttr::get(context, true);
  auto unroll = LLVM::LoopUnrollAttr::get(context, yes, {}, {}, {}, {}, {}, {});
  auto vectorize =
      LLVM::LoopVectorizeAttr::get(context, yes, {}, {}, {}, {}, {}, {});
  return LLVM::LoopAnnotationAttr::get(context, {}, vectorize, {}, unroll, {},
                                       {}, {}, {}, {}, {}, {}, {}, {}, {}, {});
}

VectorBuilder::VectorBuilder(OpBuilder builder, Location loc, Type element,
                             int64_t lanes)
    : builder(builder), loc(loc), element(element), lanes(lanes),
      vectorType(VectorType::get({lanes}, element)),
      keepLoop(disableUnrolling(builder.getContext())) {}

Value VectorBuilder::index(int64_t value) {
  return arith::ConstantIndexOp::create(builder, loc, value);
}
Value VectorBuilder::add(Value left, Value right) {
  return builder.createOrFold<arith::AddIOp>(loc, left, right);
}
Value VectorBuilder::add(Value left, int64_t right) {
  return right == 0 ? left : add(left, index(right));
}
Value VectorBuilder::subtract(Value left, Value right) {
  return builder.createOrFold<arith::SubIOp>(loc, left, right);
}
Value VectorBuilder::multiply(Value left, int64_t right) {
  return builder.createOrFold<arith::MulIOp>(loc, left, index(right));
}
Value VectorBuilder::minimum(Value left, Value right) {
  return builder.createOrFold<arith::MinSIOp>(loc, left, right);
}
Value VectorBuilder::maximum(Value left, Value right) {
  return builder.createOrFold<arith::MaxSIOp>(loc, left, right);
}
// Everything divided here is known not to be negative.
Value VectorBuilder::divide(Value left, int64_t right) {
  return builder.createOrFold<arith::DivUIOp>(loc, left, index(right));
}
Value VectorBuilder::remainder(Value left, int64_t right) {
  return builder.createOrFold<arith::RemUIOp>(loc, left, index(right));
}
Value VectorBuilder::divideUp(Value left, int64_t right) {
  return divide(add(left, right - 1), right);
}
Place VectorBuilder::offset(Place place, Value by) {
  return {place.buffer, add(place.index, by)};
}
Place VectorBuilder::offset(Place place, int64_t by) {
  return {place.buffer, add(place.index, by)};
}

void VectorBuilder::loop(Value begin, Value end, int64_t step,
                         function_ref<void(Value)> body) {
  loop(begin, end, step, {}, [&](Value position, ValueRange) {
    body(position);
    return SmallVector<Value>();
  });
}

SmallVector<Value> VectorBuilder::loop(Value begin, Value end, int64_t step,
                                       ValueRange carried, CarryingBody body) {
  auto forOp =
      scf::ForOp::create(builder, loc, begin, end, index(step), carried);
  forOp->setAttr("llvm.loop_annotation", keepLoop);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(forOp.getBody());
  SmallVector<Value> next =
      body(forOp.getInductionVar(), forOp.getRegionIterArgs());
  if (carried.empty())
    return {};
  scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(forOp.getResults());
}

void VectorBuilder::call(StringRef name, ValueRange arguments,
                         function_ref<void(ValueRange)> body) {
  Operation *parent = builder.getInsertionBlock()->getParentOp();
  auto caller = isa<func::FuncOp>(parent)
                    ? cast<func::FuncOp>(parent)
                    : parent->getParentOfType<func::FuncOp>();
  auto module = caller->getParentOfType<ModuleOp>();
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (!function) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(caller);
    function = func::FuncOp::create(
        builder, loc, name,
        builder.getFunctionType(arguments.getTypes(), TypeRange()));
    function.setPrivate();
    markVectorised(function);
    function->setAttr(
        "llvm.linkage",
        LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
    builder.setInsertionPointToStart(function.addEntryBlock());
    body(function.getArguments());
    func::ReturnOp::create(builder, loc);
  }
  auto call = func::CallOp::create(builder, loc, function, arguments);
  call.setNoInline(true);
}

Value VectorBuilder::constant(double value) {
  return arith::ConstantOp::create(builder, loc,
                                   FloatAttr::get(element, value));
}
Value VectorBuilder::splat(double value) {
  auto attribute =
      DenseElementsAttr::get(vectorType, FloatAttr::get(element, value));
  return arith::ConstantOp::create(builder, loc, attribute);
}
Value VectorBuilder::splat(Value scalar) {
  return vector::BroadcastOp::create(builder, loc, vectorType, scalar);
}
Type VectorBuilder::getStored(Place place, bool isVector) {
  Type stored = cast<MemRefType>(place.buffer.getType()).getElementType();
  return isVector ? Type(vectorType.clone(stored)) : stored;
}
Value VectorBuilder::toComputed(Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  Type wanted = vector ? Type(vectorType) : element;
  return value.getType() == wanted
             ? value
             : arith::ExtFOp::create(builder, loc, wanted, value);
}
Value VectorBuilder::toStored(Value value, Place place) {
  Type wanted = getStored(place, isa<VectorType>(value.getType()));
  return value.getType() == wanted
             ? value
             : arith::TruncFOp::create(builder, loc, wanted, value);
}

Value VectorBuilder::loadScalar(Place place) {
  return toComputed(
      memref::LoadOp::create(builder, loc, place.buffer, place.index));
}
void VectorBuilder::storeFirst(Value vector, Place place) {
  Value first = vector::ExtractOp::create(builder, loc, vector, 0);
  memref::StoreOp::create(builder, loc, toStored(first, place), place.buffer,
                          place.index);
}
Value VectorBuilder::load(Place place) {
  auto type = cast<VectorType>(getStored(place, /*isVector=*/true));
  return toComputed(
      vector::LoadOp::create(builder, loc, type, place.buffer, place.index));
}
void VectorBuilder::store(Value vector, Place place) {
  vector::StoreOp::create(builder, loc, toStored(vector, place), place.buffer,
                          place.index);
}

Value VectorBuilder::maskBelow(Value count) {
  // Lane numbers are compared at the width of the elements, so that the mask
  // needs no conversion.
  unsigned bits = element.getIntOrFloatBitWidth();
  Type integer = builder.getIntegerType(bits);
  auto type = VectorType::get({lanes}, integer);
  SmallVector<APInt> numbers;
  for (int64_t lane = 0; lane < lanes; ++lane)
    numbers.push_back(APInt(bits, lane));
  Value ramp = arith::ConstantOp::create(builder, loc,
                                         DenseElementsAttr::get(type, numbers));
  Value narrow = arith::IndexCastOp::create(builder, loc, integer, count);
  Value limit = vector::BroadcastOp::create(builder, loc, type, narrow);
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, ramp,
                               limit);
}
Value VectorBuilder::loadMasked(Place place, Value mask) {
  auto type = cast<VectorType>(getStored(place, /*isVector=*/true));
  Value zeros =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  return toComputed(vector::MaskedLoadOp::create(
      builder, loc, type, place.buffer, ValueRange{place.index}, mask, zeros));
}
void VectorBuilder::storeMasked(Value vector, Place place, Value mask) {
  vector::MaskedStoreOp::create(builder, loc, place.buffer,
                                ValueRange{place.index}, mask,
                                toStored(vector, place));
}
Value VectorBuilder::select(Value mask, Value onTrue, Value onFalse) {
  return arith::SelectOp::create(builder, loc, mask, onTrue, onFalse);
}

Value VectorBuilder::addFloat(Value left, Value right) {
  return arith::AddFOp::create(builder, loc, left, right);
}
Value VectorBuilder::subtractFloat(Value left, Value right) {
  return arith::SubFOp::create(builder, loc, left, right);
}
Value VectorBuilder::multiplyFloat(Value left, Value right) {
  return arith::MulFOp::create(builder, loc, left, right);
}
Value VectorBuilder::divideFloat(Value left, Value right) {
  return arith::DivFOp::create(builder, loc, left, right);
}
Value VectorBuilder::multiplyAdd(Value left, Value right, Value sum) {
  return vector::FMAOp::create(builder, loc, left, right, sum);
}
Value VectorBuilder::log2(Value vector) {
  return math::Log2Op::create(builder, loc, vector);
}
// Written as the comparison that x86's max is; `maximumf` would add a compare
// and a blend to each.
Value VectorBuilder::largest(Value left, Value right) {
  Value isLeft = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGT,
                                       left, right);
  return select(isLeft, left, right);
}

// 2^x = 2^n * 2^r with n the nearest integer: adding 1.5 * 2^mantissaBits
// leaves n in the low bits of the sum, from where a shift takes it to the
// exponent.
Value VectorBuilder::exp2(Value x) {
  // Minimax for 2^r on [-1/2, 1/2], relative error 2e-9.
  static const double single[] = {1.0,
                                  0.6931472057370782,
                                  0.24022646890213623,
                                  0.055503287772717354,
                                  0.009618489002611044,
                                  0.0013399931120864177,
                                  0.00015345799767666618};
  bool isSingle = element.isF32();
  SmallVector<double> terms(std::begin(single), std::end(single));
  if (!isSingle) { // The Taylor series; error below 1e-17.
    terms.assign(1, 1.0);
    for (int power = 1; power <= 13; ++power)
      terms.push_back(terms.back() * std::log(2.0) / power);
  }
  int64_t mantissaBits = isSingle ? 23 : 52;
  auto integerType = VectorType::get(
      {lanes}, builder.getIntegerType(element.getIntOrFloatBitWidth()));
  // Below this the exponent would wrap round.
  x = largest(splat(isSingle ? -125.0 : -1021.0), x);
  Value magic = splat(std::ldexp(1.5, mantissaBits));
  Value shifted = addFloat(x, magic);
  Value rest = subtractFloat(x, subtractFloat(shifted, magic));
  Value power = splat(terms.back());
  for (double term : llvm::reverse(ArrayRef(terms).drop_back()))
    power = multiplyAdd(power, rest, splat(term));
  auto asInteger = [&](Value value) -> Value {
    return arith::BitcastOp::create(builder, loc, integerType, value);
  };
  Value distance = arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(
          integerType,
          APInt(integerType.getElementTypeBitWidth(), mantissaBits)));
  Value exponent =
      arith::ShLIOp::create(builder, loc, asInteger(shifted), distance);
  Value bits = arith::AddIOp::create(builder, loc, asInteger(power), exponent);
  return arith::BitcastOp::create(builder, loc, vectorType, bits);
}

Value VectorBuilder::shuffle(Value left, Value right,
                             ArrayRef<int64_t> lanesTaken) {
  return vector::ShuffleOp::create(builder, loc, left, right, lanesTaken);
}
Value VectorBuilder::reduceLanes(Value vector,
                                 function_ref<Value(Value, Value)> combine) {
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    SmallVector<int64_t> taken;
    for (int64_t lane = 0; lane < lanes; ++lane)
      taken.push_back(lane ^ distance);
    vector = combine(vector, shuffle(vector, vector, taken));
  }
  return vector;
}
Value VectorBuilder::sumLanes(Value vector) {
  return reduceLanes(
      vector, [&](Value left, Value right) { return addFloat(left, right); });
}
Value VectorBuilder::largestLane(Value vector) {
  return reduceLanes(
      vector, [&](Value left, Value right) { return largest(left, right); });
}

void VectorBuilder::forRow(int64_t width,
                           function_ref<void(Value, Value)> body) {
  int64_t whole = width / lanes * lanes;
  if (whole <= 4 * lanes)
    for (int64_t column = 0; column < whole; column += lanes)
      body(index(column), {});
  else
    loop(index(0), index(whole), lanes,
         [&](Value column) { body(column, {}); });
  if (whole < width)
    body(index(whole), maskBelow(index(width - whole)));
}

void VectorBuilder::copyRow(Place source, Place target, int64_t width,
                            int64_t paddedWidth, Value factor) {
  forRow(width, [&](Value column, Value mask) {
    Place from = offset(source, column);
    Value value = mask ? loadMasked(from, mask) : load(from);
    if (factor)
      value = multiplyFloat(value, factor);
    store(value, offset(target, column));
  });
  int64_t written = (width + lanes - 1) / lanes * lanes;
  for (; written < paddedWidth; written += lanes)
    store(splat(0.0), offset(target, written));
}

void VectorBuilder::copyRowExactly(Place source, Place target, int64_t width,
                                   Value factor) {
  forRow(width, [&](Value column, Value mask) {
    Value value = load(offset(source, column));
    if (factor)
      value = multiplyFloat(value, factor);
    if (mask)
      storeMasked(value, offset(target, column), mask);
    else
      store(value, offset(target, column));
  });
}

Value VectorBuilder::dotRows(Place left, Place right, int64_t width) {
  auto step = [&](Value column, Value mask, Value sum) {
    auto read = [&](Place row) {
      Place place = offset(row, column);
      return mask ? loadMasked(place, mask) : load(place);
    };
    return multiplyAdd(read(left), read(right), sum);
  };
  int64_t whole = width / lanes * lanes;
  Value sum =
      loop(index(0), index(whole), lanes, {splat(0.0)},
           [&](Value column, ValueRange carried) {
             return SmallVector<Value>{step(column, {}, carried.front())};
           })
          .front();
  if (whole < width)
    sum = step(index(whole), maskBelow(index(width - whole)), sum);
  return sumLanes(sum);
}

// Swaps the off-diagonal quarters of ever smaller squares; the widest swap is
// between halves of registers, where x86 has one instruction for each.
void VectorBuilder::transpose(SmallVectorImpl<Value> &rows) {
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2)
    for (int64_t row = 0; row < lanes; ++row) {
      if (row & distance)
        continue;
      SmallVector<int64_t> upper, lower;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        bool isRight = lane & distance;
        upper.push_back(isRight ? lanes + lane - distance : lane);
        lower.push_back(isRight ? lanes + lane : lane + distance);
      }
      Value top = rows[row], bottom = rows[row + distance];
      rows[row] = shuffle(top, bottom, upper);
      rows[row + distance] = shuffle(top, bottom, lower);
    }
}

void VectorBuilder::multiplyTile(MatrixPlace left, MatrixPlace right,
                                 MatrixPlace target, int64_t rows,
                                 int64_t vectors, Value begin, Value end,
                                 bool accumulate) {
  auto targetPlace = [&](int64_t row, int64_t vector) {
    return offset(target.place, row * target.rowStride + vector * lanes);
  };
  SmallVector<Value> sums;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t vector = 0; vector < vectors; ++vector)
      sums.push_back(accumulate ? load(targetPlace(row, vector)) : splat(0.0));
  sums = loop(begin, end, 1, sums, [&](Value k, ValueRange carried) {
    Place leftColumn = offset(left.place, multiply(k, left.columnStride));
    Place rightRow = offset(right.place, multiply(k, right.rowStride));
    SmallVector<Value> operands, next;
    for (int64_t vector = 0; vector < vectors; ++vector)
      operands.push_back(load(offset(rightRow, vector * lanes)));
    for (int64_t row = 0; row < rows; ++row) {
      Value factor =
          splat(loadScalar(offset(leftColumn, row * left.rowStride)));
      for (int64_t vector = 0; vector < vectors; ++vector)
        next.push_back(multiplyAdd(factor, operands[vector],
                                   carried[row * vectors + vector]));
    }
    return next;
  });
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t vector = 0; vector < vectors; ++vector)
      store(sums[row * vectors + vector], targetPlace(row, vector));
}

} // namespace kiln::cpu
