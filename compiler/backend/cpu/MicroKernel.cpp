// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/MicroKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kiln::cpu {

TileWriter::TileWriter(OpBuilder &builder, Location loc, Type elementType,
                       const CpuTarget &target)
    : builder(builder), loc(loc), elementType(elementType),
      lanes(target.lanes(elementType.getIntOrFloatBitWidth() / 8)) {}

void TileWriter::enter(Block &block) {
  entry = &block;
  indices.clear();
}

Value TileWriter::index(int64_t value) {
  if (!entry)
    return arith::ConstantIndexOp::create(builder, loc, value);
  Value &known = indices[value];
  if (!known) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(entry);
    known = arith::ConstantIndexOp::create(builder, loc, value);
  }
  return known;
}

Value TileWriter::add(Value left, Value right) {
  return builder.createOrFold<arith::AddIOp>(loc, left, right);
}

Value TileWriter::add(Value left, int64_t right) {
  return right == 0 ? left : add(left, index(right));
}

Value TileWriter::sub(Value left, Value right) {
  return builder.createOrFold<arith::SubIOp>(loc, left, right);
}

Value TileWriter::mul(Value left, int64_t right) {
  return right == 1
             ? left
             : builder.createOrFold<arith::MulIOp>(loc, left, index(right));
}

// Indices are never negative, and unsigned division by a constant is shorter.
Value TileWriter::div(Value left, int64_t right) {
  return right == 1
             ? left
             : builder.createOrFold<arith::DivUIOp>(loc, left, index(right));
}

Value TileWriter::rem(Value left, int64_t right) {
  return right == 1
             ? index(0)
             : builder.createOrFold<arith::RemUIOp>(loc, left, index(right));
}

Value TileWriter::min(Value left, Value right) {
  return builder.createOrFold<arith::MinUIOp>(loc, left, right);
}

Value TileWriter::max(Value left, Value right) {
  return builder.createOrFold<arith::MaxUIOp>(loc, left, right);
}

Value TileWriter::isEqual(Value left, Value right) {
  return builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq,
                                             left, right);
}

Value TileWriter::isBelow(Value left, Value right) {
  return builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::ult,
                                             left, right);
}

void TileWriter::loop(Value begin, Value end, int64_t step,
                      llvm::function_ref<void(Value)> body) {
  scf::ForOp::create(builder, loc, begin, end, index(step), ValueRange{},
                     [&](OpBuilder &, Location, Value iteration, ValueRange) {
                       body(iteration);
                       scf::YieldOp::create(builder, loc);
                     });
}

Value TileWriter::fold(Value begin, Value end, int64_t step, Value initial,
                       llvm::function_ref<Value(Value, Value)> body) {
  auto loop = scf::ForOp::create(
      builder, loc, begin, end, index(step), initial,
      [&](OpBuilder &, Location, Value iteration, ValueRange carried) {
        scf::YieldOp::create(builder, loc, body(iteration, carried.front()));
      });
  return loop.getResult(0);
}

void TileWriter::branch(Value condition, llvm::function_ref<void()> then,
                        llvm::function_ref<void()> otherwise) {
  APInt known;
  if (matchPattern(condition, m_ConstantInt(&known))) {
    if (!known.isZero())
      then();
    else if (otherwise)
      otherwise();
    return;
  }
  auto region = [&](llvm::function_ref<void()> body) {
    return [this, body](OpBuilder &, Location) {
      body();
      scf::YieldOp::create(builder, loc);
    };
  };
  if (otherwise)
    scf::IfOp::create(builder, loc, condition, region(then), region(otherwise));
  else
    scf::IfOp::create(builder, loc, condition, region(then));
}

VectorType TileWriter::vectorType(int64_t size) const {
  return VectorType::get(size, elementType);
}

Value TileWriter::zeros(int64_t size) {
  return arith::ConstantOp::create(
      builder, loc, cast<TypedAttr>(builder.getZeroAttr(vectorType(size))));
}

static Type getStoredType(Value buffer) {
  return cast<MemRefType>(buffer.getType()).getElementType();
}

Value TileWriter::load(Value buffer, Value place, int64_t size) {
  Type stored = getStoredType(buffer);
  Value value = vector::LoadOp::create(
      builder, loc, VectorType::get(size, stored), buffer, place);
  return stored == elementType
             ? value
             : arith::ExtFOp::create(builder, loc, vectorType(size), value);
}

Value TileWriter::loadPadded(Value buffer, Value place, int64_t size) {
  Value value = load(buffer, place, size);
  if (size == lanes)
    return value;
  SmallVector<int64_t> order(
      lanes, size); // The first zero, for every lane past the end.
  for (int64_t lane = 0; lane < size; ++lane)
    order[lane] = lane;
  return vector::ShuffleOp::create(builder, loc, value, zeros(size), order);
}

Value TileWriter::loadScalar(Value buffer, Value place) {
  Value value = memref::LoadOp::create(builder, loc, buffer, place);
  return getStoredType(buffer) == elementType
             ? value
             : arith::ExtFOp::create(builder, loc, elementType, value);
}

void TileWriter::store(Value value, Value buffer, Value place) {
  auto vector = dyn_cast<VectorType>(value.getType());
  if (Type stored = getStoredType(buffer); stored != elementType)
    value = arith::TruncFOp::create(
        builder, loc, vector ? Type(vector.clone(stored)) : stored, value);
  if (vector)
    vector::StoreOp::create(builder, loc, value, buffer, place);
  else
    memref::StoreOp::create(builder, loc, value, buffer, place);
}

void TileWriter::prefetchRow(Value buffer, Value place, int64_t size) {
  int64_t line = 64 * 8 / getStoredType(buffer).getIntOrFloatBitWidth();
  for (int64_t element = 0; element < size; element += line)
    prefetch(buffer, add(place, element));
}

void TileWriter::prefetch(Value buffer, Value place) {
  memref::PrefetchOp::create(builder, loc, buffer, place, /*isWrite=*/true,
                             /*localityHint=*/3, /*isDataCache=*/true);
}

Value TileWriter::firstLanes(Value vector, int64_t size) {
  if (size == lanes)
    return vector;
  return vector::ShuffleOp::create(
      builder, loc, vector, vector,
      llvm::to_vector(llvm::seq<int64_t>(0, size)));
}

// Exchanges off-diagonal blocks of 1, 2, 4, ... elements between pairs of
// registers; each exchange is one or two instructions on every x86 vector unit.
void TileWriter::transpose(SmallVectorImpl<Value> &rows) {
  for (int64_t block = 1; block < lanes; block *= 2) {
    SmallVector<int64_t> upper, lower;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      bool isSecond = lane & block;
      upper.push_back(isSecond ? lanes + lane - block : lane);
      lower.push_back(isSecond ? lanes + lane : lane + block);
    }
    for (int64_t row = 0; row < lanes; ++row) {
      if (row & block)
        continue;
      Value first = rows[row], second = rows[row + block];
      rows[row] = vector::ShuffleOp::create(builder, loc, first, second, upper);
      rows[row + block] =
          vector::ShuffleOp::create(builder, loc, first, second, lower);
    }
  }
}

Value emitTable(TileWriter &write, ModuleOp module, StringRef symbol,
                ArrayRef<int64_t> values) {
  Type element = write.builder.getI64Type();
  auto type = MemRefType::get(values.size(), element);
  OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
  memref::GlobalOp::create(
      top, write.loc, symbol, top.getStringAttr("private"), type,
      DenseElementsAttr::get(RankedTensorType::get(values.size(), element),
                             values),
      /*constant=*/true, /*alignment=*/IntegerAttr());
  return memref::GetGlobalOp::create(write.builder, write.loc, type, symbol);
}

Value readTable(TileWriter &write, Value table, Value place) {
  Value value = memref::LoadOp::create(write.builder, write.loc, table, place);
  return arith::IndexCastOp::create(write.builder, write.loc,
                                    write.builder.getIndexType(), value);
}

// One step of k: every register of the right row is read once and every
// scalar of the left column once.
static void emitStep(TileWriter &write, int64_t rows, int64_t vectors,
                     const ScalarOperand &left, Value leftPlace,
                     const VectorOperand &right, Value rightPlace, int64_t step,
                     SmallVectorImpl<Value> &accumulators) {
  SmallVector<Value> columns;
  for (int64_t vector = 0; vector < vectors; ++vector)
    columns.push_back(write.load(
        right.buffer,
        write.add(rightPlace, step * right.depthStride + vector * write.lanes),
        write.lanes));
  for (int64_t row = 0; row < rows; ++row) {
    Value place = write.add(leftPlace, step * left.depthStride);
    place = left.rows.empty() ? write.add(place, row * left.rowStride)
                              : write.add(place, left.rows[row]);
    Value scalar = write.loadScalar(left.buffer, place);
    Value factor = vector::BroadcastOp::create(
        write.builder, write.loc, write.vectorType(write.lanes), scalar);
    for (int64_t vector = 0; vector < vectors; ++vector) {
      Value &accumulator = accumulators[row * vectors + vector];
      accumulator = vector::FMAOp::create(write.builder, write.loc, factor,
                                          columns[vector], accumulator);
    }
  }
}

// Runs k from `begin` to `end` in steps of `steps`; the places of the operands
// at k = 0 are `left.base` and `right.base`.
static SmallVector<Value>
emitDepthLoop(TileWriter &write, int64_t rows, int64_t vectors,
              const ScalarOperand &left, const VectorOperand &right,
              Value begin, Value end, int64_t steps, ValueRange initial) {
  auto loop = scf::ForOp::create(
      write.builder, write.loc, begin, end, write.index(steps), initial,
      [&](OpBuilder &, Location, Value k, ValueRange carried) {
        SmallVector<Value> sums(carried);
        Value leftPlace = write.add(left.base, write.mul(k, left.depthStride));
        Value rightPlace =
            write.add(right.base, write.mul(k, right.depthStride));
        for (int64_t step = 0; step < steps; ++step)
          emitStep(write, rows, vectors, left, leftPlace, right, rightPlace,
                   step, sums);
        scf::YieldOp::create(write.builder, write.loc, sums);
      });
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> emitTileProduct(TileWriter &write, int64_t rows,
                                   int64_t vectors, const ScalarOperand &left,
                                   const VectorOperand &right, Value depth,
                                   int64_t depthFactor,
                                   ArrayRef<Value> accumulators) {
  constexpr int64_t kUnroll = 4;
  auto emitLoop = [&](const ScalarOperand &first, const VectorOperand &second,
                      Value begin, Value end, int64_t steps,
                      ValueRange initial) {
    return emitDepthLoop(write, rows, vectors, first, second, begin, end, steps,
                         initial);
  };
  Value zero = write.index(0);
  if (left.depthBlock != 0) {
    auto blocks = scf::ForOp::create(
        write.builder, write.loc, zero, depth, write.index(left.depthBlock),
        accumulators, [&](OpBuilder &, Location, Value k, ValueRange carried) {
          ScalarOperand first = left;
          first.base =
              write.add(left.base, write.mul(write.div(k, left.depthBlock),
                                             left.blockStride));
          VectorOperand second = right;
          second.base = write.add(right.base, write.mul(k, right.depthStride));
          int64_t steps = std::min<int64_t>(left.depthBlock, 16);
          scf::YieldOp::create(write.builder, write.loc,
                               emitLoop(first, second, zero,
                                        write.index(left.depthBlock), steps,
                                        carried));
        });
    return SmallVector<Value>(blocks.getResults());
  }
  if (depthFactor % kUnroll == 0)
    return emitLoop(left, right, zero, depth, kUnroll, accumulators);
  Value whole = write.mul(write.div(depth, kUnroll), kUnroll);
  SmallVector<Value> sums =
      emitLoop(left, right, zero, whole, kUnroll, accumulators);
  return emitLoop(left, right, whole, depth, 1, sums);
}

// Rows of the source are rows of the panel.
static void emitCopyRows(TileWriter &write, const PackSource &source,
                         Value depth, int64_t columns, int64_t width,
                         Value panel, Value panelBase) {
  write.loop(write.index(0), depth, 1, [&](Value k) {
    Value from = write.add(source.base, write.mul(k, source.depthStride));
    Value to = write.add(panelBase, write.mul(k, width));
    for (int64_t column = 0; column < width; column += write.lanes) {
      int64_t size = std::min(write.lanes, columns - column);
      Value row = size > 0 ? write.loadPadded(source.buffer,
                                              write.add(from, column), size)
                           : write.zeros(write.lanes);
      write.store(row, panel, write.add(to, column));
    }
  });
}

// Columns of the source are contiguous: squares of `lanes` are transposed in
// registers, and the rest of the depth is copied by scalars.
static void emitCopyColumns(TileWriter &write, const PackSource &source,
                            Value depth, int64_t depthFactor, int64_t columns,
                            int64_t width, Value panel, Value panelBase) {
  int64_t lanes = write.lanes;
  Value whole = depthFactor % lanes == 0
                    ? depth
                    : write.mul(write.div(depth, lanes), lanes);
  write.loop(write.index(0), whole, lanes, [&](Value k) {
    Value from = write.add(source.base, k);
    Value to = write.add(panelBase, write.mul(k, width));
    for (int64_t column = 0; column < width; column += lanes) {
      SmallVector<Value> square;
      for (int64_t lane = column; lane < column + lanes; ++lane)
        square.push_back(
            lane < columns
                ? write.load(source.buffer,
                             write.add(from, lane * source.acrossStride), lanes)
                : write.zeros(lanes));
      write.transpose(square);
      for (int64_t row = 0; row < lanes; ++row)
        write.store(square[row], panel, write.add(to, row * width + column));
    }
  });
  if (depthFactor % lanes == 0)
    return;
  Value zero = arith::ConstantOp::create(
      write.builder, write.loc,
      cast<TypedAttr>(write.builder.getZeroAttr(write.elementType)));
  write.loop(whole, depth, 1, [&](Value k) {
    Value from = write.add(source.base, k);
    Value to = write.add(panelBase, write.mul(k, width));
    for (int64_t column = 0; column < width; ++column)
      write.store(
          column < columns
              ? write.loadScalar(source.buffer,
                                 write.add(from, column * source.acrossStride))
              : zero,
          panel, write.add(to, column));
  });
}

void emitPackPanel(TileWriter &write, const PackSource &source, Value depth,
                   int64_t depthFactor, int64_t columns, int64_t width,
                   Value panel, Value panelBase) {
  if (source.acrossStride == 1)
    emitCopyRows(write, source, depth, columns, width, panel, panelBase);
  else
    emitCopyColumns(write, source, depth, depthFactor, columns, width, panel,
                    panelBase);
}

// 6 rows by 2 registers leave 4 of 16 registers for operands; 6 by 4 leave 8
// of 32. Both need fewer loads than multiplications by a factor of 1.5 to 2.4.
TileShape chooseTile(const CpuTarget &target) {
  return {6, target.vectorRegisters >= 32 ? 4 : 2};
}

double estimateImbalance(int64_t items) {
  auto on = [&](int64_t workers) {
    return double(llvm::divideCeil(items, workers) * workers) / double(items);
  };
  return 0.75 * on(2) + 0.2 * on(4) + 0.05 * on(8);
}

} // namespace kiln::cpu
