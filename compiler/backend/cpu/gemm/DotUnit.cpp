// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/gemm/DotUnit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace kiln::cpu {

// A row of a tile: the pairs of a step of depth, or of columns.
constexpr int64_t kTileRows = 16, kPairs = kDotBlock / 2;
constexpr int64_t kTileElements = kTileRows * kDotBlock;

DotUnit findDotUnit(const CpuTarget &target, Type operands) {
  bool isServed = operands.isBF16() && target.vectorBytes == 64;
  return isServed ? target.dots : DotUnit::none;
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

// As it is stored, for moving only.
Value DotWriter::load(Value buffer, Value place, int64_t size) {
  Type element = cast<MemRefType>(buffer.getType()).getElementType();
  return vector::LoadOp::create(write.builder, write.loc,
                                VectorType::get(size, element), buffer, place);
}

static void storeRaw(TileWriter &write, Value value, Value buffer,
                     Value place) {
  vector::StoreOp::create(write.builder, write.loc, value, buffer, place);
}

static Value bitcast(TileWriter &write, Value value, int64_t size,
                     Type element) {
  return vector::BitCastOp::create(write.builder, write.loc,
                                   VectorType::get(size, element), value);
}

// Pairs of elements that were at one place, of one half of the places.
Value DotWriter::interleave(Value even, Value odd, bool isUpperHalf) {
  int64_t size = cast<VectorType>(even.getType()).getNumElements();
  SmallVector<int64_t> order;
  for (int64_t place = 0; place < kTileRows; ++place)
    for (int64_t vector : {0, 1})
      order.push_back(vector * size + place + (isUpperHalf ? kTileRows : 0));
  return vector::ShuffleOp::create(write.builder, write.loc, even, odd, order);
}

// Rows of pairs become columns of pairs.
void DotWriter::storeTransposed(SmallVectorImpl<Value> &rows, Value panel,
                                Value place) {
  Type element = cast<MemRefType>(panel.getType()).getElementType();
  for (Value &row : rows)
    row = bitcast(write, row, kPairs, write.builder.getI32Type());
  write.transpose(rows);
  for (auto [number, row] : llvm::enumerate(rows))
    storeRaw(write, bitcast(write, row, kDotBlock, element), panel,
             write.add(place, int64_t(number) * kDotBlock));
}

void DotWriter::copyLeft(const Step &step) {
  const PackSource &source = step.source;
  if (source.depthStride == 1) {
    write.loop(write.index(0), write.index(kDotBlock), 1, [&](Value row) {
      Value from = write.add(step.from, write.mul(row, source.acrossStride));
      storeRaw(write, load(source.buffer, from, kDotBlock), step.panel,
               write.add(step.place, write.mul(row, kDotBlock)));
    });
    return;
  }
  write.loop(write.index(0), write.index(kDotBlock), kTileRows, [&](Value row) {
    Value from = write.add(step.from, row);
    SmallVector<Value> pairs;
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      auto depth = [&](int64_t k) {
        return load(source.buffer, write.add(from, k * source.depthStride),
                    kTileRows);
      };
      pairs.push_back(interleave(depth(2 * pair), depth(2 * pair + 1), false));
    }
    storeTransposed(pairs, step.panel,
                    write.add(step.place, write.mul(row, kDotBlock)));
  });
}

void DotWriter::copyRightRow(const Step &step, Value pair) {
  const PackSource &source = step.source;
  Value from = write.add(step.from, write.mul(pair, 2 * source.depthStride));
  Value even = load(source.buffer, from, kDotBlock),
        odd =
            load(source.buffer, write.add(from, source.depthStride), kDotBlock);
  Value place = write.add(step.place, write.mul(pair, kDotBlock));
  for (int64_t half : {0, 1})
    storeRaw(write, interleave(even, odd, half == 1), step.panel,
             write.add(place, half * kTileElements));
}

void DotWriter::copyRight(const Step &step) {
  const PackSource &source = step.source;
  write.loop(write.index(0), write.index(2), 1, [&](Value half) {
    Value from =
        write.add(step.from, write.mul(half, kTileRows * source.acrossStride));
    SmallVector<Value> columns;
    for (int64_t column = 0; column < kTileRows; ++column)
      columns.push_back(load(source.buffer,
                             write.add(from, column * source.acrossStride),
                             kDotBlock));
    storeTransposed(columns, step.panel,
                    write.add(step.place, write.mul(half, kTileElements)));
  });
}

// Steps from `firstStep` on, element by element: those that are not full.
void DotWriter::packRest(const PackSource &source, Value depth, Value across,
                         Value firstStep, bool isLeft, Value panel,
                         Value panelBase) {
  Value steps = write.div(write.add(depth, kDotBlock - 1), kDotBlock);
  Type element = cast<MemRefType>(panel.getType()).getElementType();
  auto type = VectorType::get(kDotBlock, element);
  Value zeros = arith::ConstantOp::create(
      write.builder, write.loc,
      cast<TypedAttr>(write.builder.getZeroAttr(type)));
  write.loop(firstStep, steps, 1, [&](Value step) {
    Value place = write.add(panelBase, write.mul(step, kDotStepElements));
    write.loop(write.index(0), write.index(kDotStepElements), kDotBlock,
               [&](Value offset) {
                 storeRaw(write, zeros, panel, write.add(place, offset));
               });
    Value first = write.mul(step, kDotBlock);
    Value size = write.min(write.sub(depth, first), write.index(kDotBlock));
    write.loop(write.index(0), size, 1, [&](Value k) {
      write.loop(write.index(0), across, 1, [&](Value i) {
        Value from = write.add(
            source.base,
            write.add(write.mul(write.add(first, k), source.depthStride),
                      write.mul(i, source.acrossStride)));
        Value to = write.add(write.mul(i, kDotBlock), k);
        if (!isLeft)
          to = write.add(
              write.add(write.mul(write.div(i, kTileRows), kTileElements),
                        write.mul(write.div(k, 2), kDotBlock)),
              write.add(write.mul(write.rem(i, kTileRows), 2),
                        write.rem(k, 2)));
        Value value = memref::LoadOp::create(write.builder, write.loc,
                                             source.buffer, from);
        memref::StoreOp::create(write.builder, write.loc, value, panel,
                                write.add(place, to));
      });
    });
  });
}

void DotWriter::packLeft(const PackSource &source, Value depth, Value across,
                         Value panel, Value panelBase) {
  Value isWhole = write.isEqual(across, write.index(kDotBlock));
  Value whole =
      arith::SelectOp::create(write.builder, write.loc, isWhole,
                              write.div(depth, kDotBlock), write.index(0));
  write.loop(write.index(0), whole, 1, [&](Value step) {
    Value from =
        write.add(source.base, write.mul(step, kDotBlock * source.depthStride));
    copyLeft({source, from, panel,
              write.add(panelBase, write.mul(step, kDotStepElements))});
  });
  packRest(source, depth, across, whole, /*isLeft=*/true, panel, panelBase);
}

// Where columns are contiguous, all panels take their share of a row of the
// source at once, so that it is read in long runs.
void DotWriter::packRight(const PackSource &source, Value depth, Value across,
                          Value panels, Value panel, Value panelBase,
                          int64_t panelStride) {
  Value wholePanels = write.div(across, kDotBlock),
        wholeSteps = write.div(depth, kDotBlock);
  auto at = [&](Value step, Value number) {
    Value from = write.add(
        source.base,
        write.add(write.mul(step, kDotBlock * source.depthStride),
                  write.mul(number, kDotBlock * source.acrossStride)));
    Value place =
        write.add(panelBase, write.add(write.mul(number, panelStride),
                                       write.mul(step, kDotStepElements)));
    return Step{source, from, panel, place};
  };
  bool isByRows = source.acrossStride == 1;
  write.loop(write.index(0), wholeSteps, 1, [&](Value step) {
    if (!isByRows) {
      write.loop(write.index(0), wholePanels, 1,
                 [&](Value number) { copyRight(at(step, number)); });
      return;
    }
    write.loop(write.index(0), write.index(kPairs), 1, [&](Value pair) {
      write.loop(write.index(0), wholePanels, 1,
                 [&](Value number) { copyRightRow(at(step, number), pair); });
    });
  });
  write.loop(write.index(0), panels, 1, [&](Value number) {
    PackSource own = source;
    own.base = write.add(source.base,
                         write.mul(number, kDotBlock * source.acrossStride));
    Value first = arith::SelectOp::create(write.builder, write.loc,
                                          write.isBelow(number, wholePanels),
                                          wholeSteps, write.index(0));
    Value columns = write.min(write.sub(across, write.mul(number, kDotBlock)),
                              write.index(kDotBlock));
    packRest(own, depth, columns, first, /*isLeft=*/false, panel,
             write.add(panelBase, write.mul(number, panelStride)));
  });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Value DotWriter::getAddress(Value buffer, Value place) {
  OpBuilder &builder = write.builder;
  int64_t bytes =
      cast<MemRefType>(buffer.getType()).getElementTypeBitWidth() / 8;
  Value base = memref::ExtractAlignedPointerAsIndexOp::create(
      builder, write.loc, buffer);
  Value address =
      arith::IndexCastOp::create(builder, write.loc, builder.getI64Type(),
                                 write.add(base, write.mul(place, bytes)));
  return LLVM::IntToPtrOp::create(
      builder, write.loc, LLVM::LLVMPointerType::get(builder.getContext()),
      address);
}

// Tiles are registers that are named by constants.
void DotWriter::callTile(StringRef name, ArrayRef<int64_t> tiles,
                         ValueRange operands) {
  SmallVector<Value> arguments;
  for (int64_t tile : tiles)
    arguments.push_back(LLVM::ConstantOp::create(
        write.builder, write.loc, write.builder.getI8Type(), tile));
  llvm::append_range(arguments, operands);
  LLVM::CallIntrinsicOp::create(write.builder, write.loc,
                                write.builder.getStringAttr("llvm.x86." + name),
                                arguments);
}

// Every tile has 16 rows of 64 bytes.
static Value getTileConfiguration(TileWriter &write) {
  constexpr StringLiteral kName = "tile_configuration";
  constexpr int64_t kBytes = 64, kTiles = 8;
  OpBuilder &builder = write.builder;
  auto module =
      builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto type = MemRefType::get(kBytes, builder.getI8Type());
  if (!module.lookupSymbol(kName)) {
    std::array<int8_t, kBytes> bytes = {1}; // The palette.
    for (int64_t tile = 0; tile < kTiles; ++tile) {
      bytes[16 + 2 * tile] = 64; // Bytes of a row, in 16 bits.
      bytes[48 + tile] = kTileRows;
    }
    OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
    memref::GlobalOp::create(
        top, write.loc, kName, top.getStringAttr("private"), type,
        DenseElementsAttr::get(
            RankedTensorType::get(kBytes, builder.getI8Type()),
            ArrayRef<int8_t>(bytes)),
        /*constant=*/true, /*alignment=*/IntegerAttr());
  }
  return memref::GetGlobalOp::create(builder, write.loc, type, kName);
}

void DotWriter::begin() {
  if (unit == DotUnit::tiles && !isExpanded)
    callTile("ldtilecfg", {},
             getAddress(getTileConfiguration(write), write.index(0)));
}

void DotWriter::end() {
  if (unit == DotUnit::tiles && !isExpanded)
    callTile("tilerelease", {});
}

void DotWriter::multiply(const Operand &left, const Operand &right, Value steps,
                         const Operand &sums, int64_t rowStride,
                         Value isFirst) {
  if (unit == DotUnit::tiles && !isExpanded)
    multiplyTiles(left, right, steps, sums, rowStride, isFirst);
  else
    multiplyRows(left, right, steps, sums, rowStride, isFirst);
}

// Tiles 0 to 3 are the sums, 4 and 5 rows of the left panel, 6 and 7 columns of
// the right one.
void DotWriter::multiplyTiles(const Operand &left, const Operand &right,
                              Value steps, const Operand &sums,
                              int64_t rowStride, Value isFirst) {
  OpBuilder &builder = write.builder;
  auto stride = [&](int64_t bytes) {
    return LLVM::ConstantOp::create(builder, write.loc, builder.getI64Type(),
                                    bytes);
  };
  auto forSums = [&](StringRef name) {
    for (int64_t tile = 0; tile < 4; ++tile) {
      int64_t offset = tile / 2 * kTileRows * rowStride + tile % 2 * kTileRows;
      callTile(name, {tile},
               {getAddress(sums.buffer, write.add(sums.base, offset)),
                stride(rowStride * int64_t(sizeof(float)))});
    }
  };
  write.branch(
      isFirst,
      [&] {
        for (int64_t tile = 0; tile < 4; ++tile)
          callTile("tilezero", {tile});
      },
      [&] { forSums("tileloadd64"); });
  write.loop(write.index(0), steps, 1, [&](Value step) {
    Value place = write.mul(step, kDotStepElements);
    auto load = [&](int64_t tile, const Operand &operand, int64_t half) {
      Value from =
          write.add(write.add(operand.base, place), half * kTileElements);
      callTile("tileloadd64", {tile},
               {getAddress(operand.buffer, from), stride(64)});
    };
    load(4, left, 0);
    load(6, right, 0);
    callTile("tdpbf16ps", {0, 4, 6});
    load(7, right, 1);
    callTile("tdpbf16ps", {1, 4, 7});
    load(5, left, 1);
    callTile("tdpbf16ps", {2, 5, 6});
    callTile("tdpbf16ps", {3, 5, 7});
  });
  forSums("tilestored64");
}

// A pair of elements in every lane.
Value DotWriter::loadPair(const Operand &left, Value place) {
  OpBuilder &builder = write.builder;
  Type word = builder.getI32Type();
  Value pair = vector::ExtractOp::create(
      builder, write.loc, bitcast(write, load(left.buffer, place, 2), 1, word),
      0);
  return vector::BroadcastOp::create(builder, write.loc,
                                     VectorType::get(kPairs, word), pair);
}

// Adds the products of both elements of each pair. `left` is of words, `right`
// of elements.
Value DotWriter::dot(Value sum, Value left, Value right) {
  OpBuilder &builder = write.builder;
  Location loc = write.loc;
  Type word = builder.getI32Type();
  if (!isExpanded) {
    Value elements = bitcast(write, left, kDotBlock, builder.getBF16Type());
    return LLVM::CallIntrinsicOp::create(
               builder, loc, sum.getType(),
               builder.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
               ValueRange{sum, elements, right})
        .getResult(0);
  }
  auto constant = [&](int64_t value) {
    auto type = VectorType::get(kPairs, word);
    return arith::ConstantOp::create(
        builder, loc,
        DenseElementsAttr::get(type, builder.getI32IntegerAttr(value)));
  };
  auto even = [&](Value words) {
    return bitcast(write,
                   arith::ShLIOp::create(builder, loc, words, constant(16)),
                   kPairs, builder.getF32Type());
  };
  auto odd = [&](Value words) {
    return bitcast(write,
                   arith::AndIOp::create(builder, loc, words, constant(-65536)),
                   kPairs, builder.getF32Type());
  };
  Value words = bitcast(write, right, kPairs, word);
  sum = vector::FMAOp::create(builder, loc, even(left), even(words), sum);
  return vector::FMAOp::create(builder, loc, odd(left), odd(words), sum);
}

// Eight rows at a time, whose sums stay in registers.
void DotWriter::multiplyRows(const Operand &left, const Operand &right,
                             Value steps, const Operand &sums,
                             int64_t rowStride, Value isFirst) {
  constexpr int64_t kRows = 8, kHalves = 2, kUnroll = 4;
  OpBuilder &builder = write.builder;
  write.loop(write.index(0), write.index(kDotBlock), kRows, [&](Value row) {
    Value target = write.add(sums.base, write.mul(row, rowStride));
    auto at = [&](int64_t number) {
      return write.add(target, number / kHalves * rowStride +
                                   number % kHalves * kTileRows);
    };
    auto start = scf::IfOp::create(
        builder, write.loc, isFirst,
        [&](OpBuilder &, Location) {
          SmallVector<Value> zeros(kRows * kHalves, write.zeros(kTileRows));
          scf::YieldOp::create(builder, write.loc, zeros);
        },
        [&](OpBuilder &, Location) {
          SmallVector<Value> values;
          for (int64_t number = 0; number < kRows * kHalves; ++number)
            values.push_back(write.load(sums.buffer, at(number), kTileRows));
          scf::YieldOp::create(builder, write.loc, values);
        });
    auto addPairs = [&](Value step, Value pair, ValueRange carried) {
      SmallVector<Value> values(carried);
      Value place = write.mul(step, kDotStepElements);
      for (int64_t next = 0; next < kUnroll; ++next) {
        Value number = write.add(pair, next);
        Value from = write.add(right.base,
                               write.add(place, write.mul(number, kDotBlock)));
        Value columns[kHalves] = {
            load(right.buffer, from, kDotBlock),
            load(right.buffer, write.add(from, kTileElements), kDotBlock)};
        Value own = write.add(
            left.base, write.add(place, write.add(write.mul(row, kDotBlock),
                                                  write.mul(number, 2))));
        for (int64_t i = 0; i < kRows; ++i) {
          Value both = loadPair(left, write.add(own, i * kDotBlock));
          for (int64_t half = 0; half < kHalves; ++half) {
            Value &value = values[i * kHalves + half];
            value = dot(value, both, columns[half]);
          }
        }
      }
      return values;
    };
    auto outer = scf::ForOp::create(
        builder, write.loc, write.index(0), steps, write.index(1),
        start.getResults(),
        [&](OpBuilder &, Location, Value step, ValueRange carried) {
          auto inner = scf::ForOp::create(
              builder, write.loc, write.index(0), write.index(kPairs),
              write.index(kUnroll), carried,
              [&](OpBuilder &, Location, Value pair, ValueRange values) {
                scf::YieldOp::create(builder, write.loc,
                                     addPairs(step, pair, values));
              });
          scf::YieldOp::create(builder, write.loc, inner.getResults());
        });
    for (auto [number, value] : llvm::enumerate(outer.getResults()))
      write.store(value, sums.buffer, at(number));
  });
}

} // namespace kiln::cpu
