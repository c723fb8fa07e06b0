// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/attention/EmitAttentionBlocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kiln::cpu {

// A tile of few vectors has few independent sums and loads more per product,
// which the constant accounts for; a wide one may multiply padding.
static int64_t chooseWidthVectors(int64_t width, int64_t lanes, int64_t most) {
  int64_t best = 1;
  double bestCost = 0;
  for (int64_t vectors = 1; vectors <= most; ++vectors) {
    double cost = llvm::divideCeil(width, vectors * lanes) * (vectors + 0.5);
    if (vectors == 1 || cost <= bestCost) {
      best = vectors;
      bestCost = cost;
    }
  }
  return best;
}

// Walking down a column must not return to the same cache sets.
static int64_t avoidPowersOfTwo(int64_t stride, int64_t lineElements) {
  stride = llvm::alignTo(stride, lineElements);
  return stride % (8 * lineElements) == 0 ? stride + lineElements : stride;
}

AttentionLayout::AttentionLayout(const AttentionShape &shape,
                                 const CpuTarget &target, int64_t strips,
                                 int64_t mostRows, int64_t cacheBytes) {
  int64_t elementBytes = shape.types.computedBytes();
  int64_t lineElements = 64 / elementBytes;
  bool isWide = target.vectorRegisters >= 32;
  lanes = target.lanes(elementBytes);
  rowTile = isWide ? 8 : 6;
  scoreVectors = 2;
  widthVectors = chooseWidthVectors(shape.headWidth, lanes, isWide ? 3 : 2);
  panelColumns = scoreVectors * lanes;
  panelRows = llvm::alignTo(shape.headWidth, lanes);
  panels = llvm::divideCeil(shape.sequence, panelColumns);
  widthTile = widthVectors * lanes;
  widthTiles = llvm::divideCeil(shape.headWidth, widthTile);
  widthStride = widthTiles * widthTile;
  if (widthStride * elementBytes >= 512)
    widthStride = avoidPowersOfTwo(widthStride, lineElements);
  keyRows = llvm::alignTo(shape.sequence, rowTile);
  // One vector past the last panel: a row's tail is handled as a whole vector
  // even if it is empty.
  scoreStride = avoidPowersOfTwo(
      std::max(panels * panelColumns, keyRows) + lanes, lineElements);
  // The scores of a block fit the second-level cache. More rows at a time than
  // 48 gained nothing at any sequence; fewer cost the products over rows.
  int64_t fitting = cacheBytes / (strips * scoreStride * elementBytes);
  int64_t rows = std::min({fitting, mostRows, keyRows});
  blockRows = std::max(rows / rowTile, int64_t(1)) * rowTile;
  blocks = llvm::divideCeil(shape.sequence, blockRows);
}

int64_t ScratchPlan::take(int64_t elements) {
  int64_t begin = used;
  used += llvm::alignTo(elements, lineElements);
  return begin;
}

QueryBlock AttentionBlocks::getBlock(Value number, Value keyBegin,
                                     Value keyEnd) {
  QueryBlock block;
  block.first = code.multiply(number, layout.blockRows);
  block.rows =
      code.minimum(code.index(layout.blockRows),
                   code.subtract(code.index(shape.sequence), block.first));
  block.tiles = code.divideUp(block.rows, layout.rowTile);
  block.keyBegin = keyBegin;
  block.keyEnd = keyEnd;
  return block;
}

Value AttentionBlocks::getKeyLimit(const QueryBlock &block) {
  if (!shape.isCausal)
    return block.keyEnd;
  return code.minimum(block.keyEnd, code.add(block.first, block.rows));
}

void AttentionBlocks::callStep(StringRef name, const QueryBlock &block,
                               ArrayRef<Place> places, StepBody body) {
  SmallVector<Value> arguments = {block.first, block.rows, block.tiles,
                                  block.keyBegin, block.keyEnd};
  for (Place place : places)
    arguments.append({place.buffer, place.index});
  code.call(symbol + "_" + name.str(), arguments, [&](ValueRange values) {
    QueryBlock inner = {values[0], values[1], values[2], values[3], values[4]};
    SmallVector<Place> innerPlaces;
    for (size_t index = 5; index < values.size(); index += 2)
      innerPlaces.push_back({values[index], values[index + 1]});
    body(inner, innerPlaces);
  });
}

// Functions are shared only between sources of one type and one stride.
static std::string nameOf(StringRef step, Place place, int64_t stride) {
  auto type = cast<MemRefType>(place.buffer.getType());
  return (step + "_" + Twine(type.getDimSize(0)) + "_" + Twine(stride)).str();
}

void AttentionBlocks::packRows(Place source, int64_t sourceStride, Place target,
                               Value first, Value count, double factor) {
  code.call(nameOf(symbol + "_pack", source, sourceStride),
            {source.buffer, source.index, target.buffer, target.index, first,
             count, code.constant(factor)},
            [&](ValueRange values) {
              Place from = {values[0], values[1]}, to = {values[2], values[3]};
              Value scale = code.splat(values[6]);
              code.loop(code.index(0), values[5], 1, [&](Value row) {
                Value taken = code.minimum(code.add(values[4], row),
                                           code.index(shape.sequence - 1));
                code.copyRow(
                    code.offset(from, code.multiply(taken, sourceStride)),
                    code.offset(to, code.multiply(row, layout.widthStride)),
                    shape.headWidth, layout.widthTiles * layout.widthTile,
                    scale);
              });
            });
}

void AttentionBlocks::packTransposed(Place source, int64_t sourceStride,
                                     Place target, double factor) {
  code.call(nameOf(symbol + "_transpose", source, sourceStride),
            {source.buffer, source.index, target.buffer, target.index,
             code.constant(factor)},
            [&](ValueRange values) {
              emitTransposed({values[0], values[1]}, sourceStride,
                             {values[2], values[3]}, code.splat(values[4]));
            });
}

void AttentionBlocks::emitTransposed(Place source, int64_t sourceStride,
                                     Place target, Value factor) {
  int64_t lanes = layout.lanes, width = shape.headWidth;
  auto packSquare = [&](Value group, Value column, Value mask) {
    SmallVector<Value> rows;
    for (int64_t row = 0; row < lanes; ++row) {
      Value from = code.minimum(code.add(code.multiply(group, lanes), row),
                                code.index(shape.sequence - 1));
      Place place = code.offset(
          code.offset(source, code.multiply(from, sourceStride)), column);
      Value value = mask ? code.loadMasked(place, mask) : code.load(place);
      rows.push_back(code.multiplyFloat(value, factor));
    }
    code.transpose(rows);
    Value panel = code.divide(group, layout.scoreVectors);
    Value within =
        code.multiply(code.remainder(group, layout.scoreVectors), lanes);
    Place to = code.offset(
        code.offset(target, code.multiply(panel, layout.panelRows *
                                                     layout.panelColumns)),
        code.add(code.multiply(column, layout.panelColumns), within));
    for (int64_t row = 0; row < lanes; ++row)
      code.store(rows[row], code.offset(to, row * layout.panelColumns));
  };
  int64_t whole = width / lanes * lanes;
  Value groups = code.index(layout.panels * layout.scoreVectors);
  code.loop(code.index(0), groups, 1, [&](Value group) {
    if (whole > 0)
      code.loop(code.index(0), code.index(whole), lanes,
                [&](Value column) { packSquare(group, column, {}); });
    if (whole < width)
      packSquare(group, code.index(whole),
                 code.maskBelow(code.index(width - whole)));
  });
}

void AttentionBlocks::writeRows(Place source, Place target,
                                int64_t targetStride, Value rows) {
  code.call(nameOf(symbol + "_write", target, targetStride),
            {source.buffer, source.index, target.buffer, target.index, rows},
            [&](ValueRange values) {
              Place from = {values[0], values[1]}, to = {values[2], values[3]};
              code.loop(code.index(0), values[4], 1, [&](Value row) {
                code.copyRowExactly(
                    code.offset(from, code.multiply(row, layout.widthStride)),
                    code.offset(to, code.multiply(row, targetStride)),
                    shape.headWidth, {});
              });
            });
}

void AttentionBlocks::multiplyPanels(const QueryBlock &block, Place left,
                                     Place panels, Place scores) {
  callStep("panels", block, {left, panels, scores},
           [&](const QueryBlock &inner, ArrayRef<Place> places) {
             emitPanels(inner, places[0], places[1], places[2]);
           });
}

void AttentionBlocks::multiplyScores(const QueryBlock &block, Place scores,
                                     Place right, Place target) {
  callStep("scores", block, {scores, right, target},
           [&](const QueryBlock &inner, ArrayRef<Place> places) {
             emitScores(inner, places[0], places[1], places[2]);
           });
}

void AttentionBlocks::multiplyScoresTransposed(const QueryBlock &block,
                                               Place scores, Place right,
                                               Place target) {
  callStep("scores_transposed", block, {scores, right, target},
           [&](const QueryBlock &inner, ArrayRef<Place> places) {
             emitScoresTransposed(inner, places[0], places[1], places[2]);
           });
}

void AttentionBlocks::emitPanels(const QueryBlock &block, Place left,
                                 Place panels, Place scores) {
  Value begin = code.divide(block.keyBegin, layout.panelColumns);
  Value end = code.divideUp(getKeyLimit(block), layout.panelColumns);
  code.loop(begin, end, 1, [&](Value panel) {
    Value firstKey = code.multiply(panel, layout.panelColumns);
    Value firstTile = code.index(0);
    if (shape.isCausal)
      firstTile = code.divide(
          code.maximum(firstTile, code.subtract(firstKey, block.first)),
          layout.rowTile);
    Place right = code.offset(
        panels, code.multiply(panel, layout.panelRows * layout.panelColumns));
    code.loop(firstTile, block.tiles, 1, [&](Value tile) {
      Value row = code.multiply(tile, layout.rowTile);
      Place to = code.offset(
          code.offset(scores, code.multiply(row, layout.scoreStride)),
          firstKey);
      code.multiplyTile(
          {code.offset(left, code.multiply(row, layout.widthStride)),
           layout.widthStride, 1},
          {right, layout.panelColumns, 1}, {to, layout.scoreStride, 1},
          layout.rowTile, layout.scoreVectors, code.index(0),
          code.index(shape.headWidth), /*accumulate=*/false);
    });
  });
}

void AttentionBlocks::emitScores(const QueryBlock &block, Place scores,
                                 Place right, Place target) {
  code.loop(code.index(0), code.index(layout.widthTiles), 1, [&](Value column) {
    Value shift = code.multiply(column, layout.widthTile);
    code.loop(code.index(0), block.tiles, 1, [&](Value tile) {
      Value row = code.multiply(tile, layout.rowTile);
      Value end = block.keyEnd;
      if (shape.isCausal)
        end = code.minimum(
            end, code.add(code.add(block.first, row), layout.rowTile));
      Place to = code.offset(
          code.offset(target, code.multiply(row, layout.widthStride)), shift);
      code.multiplyTile(
          {code.offset(scores, code.multiply(row, layout.scoreStride)),
           layout.scoreStride, 1},
          {code.offset(right, shift), layout.widthStride, 1},
          {to, layout.widthStride, 1}, layout.rowTile, layout.widthVectors,
          block.keyBegin, end, /*accumulate=*/false);
    });
  });
}

void AttentionBlocks::emitScoresTransposed(const QueryBlock &block,
                                           Place scores, Place right,
                                           Place target) {
  Value begin = code.divide(block.keyBegin, layout.rowTile);
  Value end = code.divideUp(getKeyLimit(block), layout.rowTile);
  code.loop(begin, end, 1, [&](Value tile) {
    Value key = code.multiply(tile, layout.rowTile);
    // Queries before the first key of the tile see none of it.
    Value firstRow = code.index(0);
    if (shape.isCausal)
      firstRow = code.maximum(firstRow, code.subtract(key, block.first));
    code.loop(
        code.index(0), code.index(layout.widthTiles), 1, [&](Value column) {
          Value shift = code.multiply(column, layout.widthTile);
          Place to = code.offset(
              code.offset(target, code.multiply(key, layout.widthStride)),
              shift);
          code.multiplyTile({code.offset(scores, key), 1, layout.scoreStride},
                            {code.offset(right, shift), layout.widthStride, 1},
                            {to, layout.widthStride, 1}, layout.rowTile,
                            layout.widthVectors, firstRow, block.rows,
                            /*accumulate=*/true);
        });
  });
}

Value AttentionBlocks::getVisible(const QueryBlock &block, Value row) {
  if (!shape.isCausal)
    return block.keyEnd;
  return code.minimum(block.keyEnd, code.add(code.add(block.first, row), 1));
}

Value AttentionBlocks::getRead(const QueryBlock &block, Value row) {
  Value tiles = code.divideUp(block.keyEnd, layout.rowTile);
  if (shape.isCausal)
    tiles = code.minimum(
        tiles,
        code.add(code.divide(code.add(block.first, row), layout.rowTile), 1));
  return code.multiply(tiles, layout.rowTile);
}

SmallVector<Value> AttentionBlocks::forVisible(const QueryBlock &block,
                                               Value row, ValueRange carried,
                                               RowBody body) {
  Value visible = getVisible(block, row);
  Value whole = code.multiply(code.divide(visible, layout.lanes), layout.lanes);
  // In a group of keys, a row before it sees none: no vector may then run.
  whole = code.maximum(whole, block.keyBegin);
  SmallVector<Value> result =
      code.loop(block.keyBegin, whole, layout.lanes, carried,
                [&](Value column, ValueRange values) {
                  return body(column, {}, values);
                });
  Value mask = code.maskBelow(code.subtract(visible, whole));
  return body(whole, mask, result);
}

void AttentionBlocks::clearHidden(const QueryBlock &block, Value row,
                                  ArrayRef<Place> targets) {
  Value visible = getVisible(block, row);
  Value whole = code.multiply(code.divide(visible, layout.lanes), layout.lanes);
  whole = code.maximum(whole, block.keyBegin);
  code.loop(code.add(whole, layout.lanes), getRead(block, row), layout.lanes,
            [&](Value column) {
              for (Place target : targets)
                code.store(code.splat(0.0), code.offset(target, column));
            });
}

func::FuncOp createFlatStage(ModuleOp module, StringRef symbol,
                             const AttentionShape &shape,
                             ArrayRef<FlatBuffer> flat, unsigned lengthsAt) {
  MLIRContext *context = module.getContext();
  context
      ->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                    math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  SmallVector<Type> buffers;
  for (const FlatBuffer &buffer : flat)
    buffers.push_back(MemRefType::get({buffer.size}, buffer.element));
  if (shape.hasLengths)
    buffers.insert(
        buffers.begin() + lengthsAt,
        MemRefType::get({shape.batch}, IntegerType::get(context, 32)));
  func::FuncOp stage = createStage(module, symbol, buffers);
  markVectorised(stage);
  return stage;
}

Value loadLength(VectorBuilder &code, const AttentionShape &shape,
                 func::FuncOp stage, unsigned lengthsAt, Value sample) {
  if (!shape.hasLengths)
    return code.index(shape.sequence);
  OpBuilder &builder = code.getBuilder();
  Value length = memref::LoadOp::create(builder, code.getLoc(),
                                        stage.getArgument(lengthsAt), sample);
  length = arith::IndexCastOp::create(builder, code.getLoc(),
                                      builder.getIndexType(), length);
  return code.maximum(code.index(1),
                      code.minimum(length, code.index(shape.sequence)));
}

} // namespace kiln::cpu
