// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loop nest of Goto and van de Geijn with all sizes known:
//   for each item (a block of C)
//     for each block of k: pack B into panels that stay in the second cache
//       for each block of rows: pack A, if its columns are contiguous
//         for each panel, for each register tile: multiply
// A with contiguous rows is read in place: its scalars are at constant
// distances from one pointer, and six streams do not trouble the cache.
// Operands of 16 bits are widened while they are packed, A with contiguous rows
// too.
#include "compiler/backend/cpu/gemm/EmitGemm.h"

#include "compiler/backend/cpu/MicroKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kiln::cpu {

namespace {

/// The sizes of all blocks. Items run through rows first, so that a worker
/// meets the same columns of B again and need not pack them anew.
struct GemmPlan {
  TileShape tile;
  int64_t width; ///< Columns of a whole panel.
  int64_t itemRows, itemColumns;
  int64_t rowItems, columnItems;
  int64_t blockRows, blockDepth;
  bool packsLeft;  ///< Columns of A are dealt out to panels.
  bool widensLeft; ///< Rows of A are copied.
  int64_t leftPanelStride, rightPanelStride; ///< Elements from panel to panel.
  int64_t leftRowStride;                     ///< From row to row of the copy.
  bool keepsSums; ///< Of an item, because C cannot hold them before they are
                  ///< rounded.
  int64_t rightSize, leftSize, scratchSize; ///< Elements per worker.
};

} // namespace

// Panels one after another would all start in the same cache set when the
// depth is a power of two.
static int64_t skew(int64_t elements) { return elements + 16; }

// Relative cost of cutting C into rowItems x columnItems: packing B is
// repeated for each row item, packing A for each column item, and the workers
// share the items. Costs are cycles per element from measurements on Zen 3.
static double splitCost(const GemmShape &shape, const GemmPlan &plan,
                        int64_t rowItems, int64_t columnItems) {
  int64_t items = rowItems * columnItems;
  double balance = estimateImbalance(items);
  double rows = double(shape.m) / rowItems;
  double columns = double(shape.n) / columnItems;
  double packing = 16.0 / rows + (plan.packsLeft ? 16.0 : 6.0) / columns;
  return (1.0 + packing) * balance + 0.0005 * items;
}

static void chooseItems(const GemmShape &shape, const CpuTarget &target,
                        const GemmTuning &tuning, GemmPlan &plan) {
  int64_t bytes = shape.types.computedBytes();
  int64_t panels = llvm::divideCeil(shape.n, plan.width);
  int64_t tiles = llvm::divideCeil(shape.m, plan.tile.rows);
  int64_t panelLimit =
      std::max<int64_t>(1, target.l2Bytes * tuning.rightCachePercent / 100 /
                               (plan.blockDepth * plan.width * bytes));
  double best = 0;
  for (int64_t perColumnItem = 1; perColumnItem <= std::min(panels, panelLimit);
       ++perColumnItem)
    for (int64_t perRowItem = std::min<int64_t>(tiles, 4); perRowItem <= tiles;
         perRowItem = perRowItem == tiles
                          ? tiles + 1
                          : std::min(tiles, perRowItem + perRowItem / 4)) {
      int64_t rowItems = llvm::divideCeil(tiles, perRowItem);
      int64_t columnItems = llvm::divideCeil(panels, perColumnItem);
      double cost = splitCost(shape, plan, rowItems, columnItems);
      if (best != 0 && cost >= best)
        continue;
      best = cost;
      plan.rowItems = rowItems;
      plan.columnItems = columnItems;
      plan.itemRows = llvm::divideCeil(tiles, rowItems) * plan.tile.rows;
      plan.itemColumns = llvm::divideCeil(panels, columnItems) * plan.width;
    }
  if (tuning.itemRows)
    plan.itemRows = llvm::alignTo(std::min(tuning.itemRows, shape.m),
                                  uint64_t(plan.tile.rows));
  if (tuning.itemColumns)
    plan.itemColumns = llvm::alignTo(std::min(tuning.itemColumns, shape.n),
                                     uint64_t(plan.width));
  // Rounding up may leave the last ones empty.
  plan.rowItems = llvm::divideCeil(shape.m, plan.itemRows);
  plan.columnItems = llvm::divideCeil(shape.n, plan.itemColumns);
}

GemmTuning::GemmTuning(const CpuTarget &target) {
  TileShape tile = chooseTile(target);
  tileRows = tile.rows;
  tileVectors = tile.vectors;
}

static GemmPlan makePlan(const GemmShape &shape, const CpuTarget &target,
                         const GemmTuning &tuning) {
  GemmPlan plan;
  int64_t bytes = shape.types.computedBytes();
  plan.tile = {tuning.tileRows, tuning.tileVectors};
  plan.width = plan.tile.vectors * target.lanes(bytes);
  plan.packsLeft = shape.aColumnStride != 1;
  plan.widensLeft =
      !plan.packsLeft && shape.types.operands != shape.types.computed();
  // A panel of B is read once per tile of rows, from the first cache while it
  // fits. Deeper blocks save passes over C; both effects balance here. The
  // depth is the order of summation.
  int64_t depthLimit = bytes == 4 ? 512 : 256;
  int64_t depthBlocks = llvm::divideCeil(shape.k, depthLimit);
  plan.blockDepth = llvm::alignTo(llvm::divideCeil(shape.k, depthBlocks), 8);
  chooseItems(shape, target, tuning, plan);
  int64_t rowLimit =
      std::max<int64_t>(1, target.l2Bytes * tuning.leftCachePercent / 100 /
                               (plan.blockDepth * plan.tile.rows * bytes));
  int64_t itemTiles = plan.itemRows / plan.tile.rows;
  int64_t rowBlocks = llvm::divideCeil(itemTiles, rowLimit);
  plan.blockRows = llvm::divideCeil(itemTiles, rowBlocks) * plan.tile.rows;
  plan.leftPanelStride = skew(plan.blockDepth * plan.tile.rows);
  plan.rightPanelStride = skew(plan.blockDepth * plan.width);
  plan.rightSize = plan.itemColumns / plan.width * plan.rightPanelStride;
  plan.leftRowStride = skew(plan.blockDepth);
  plan.leftSize = plan.packsLeft
                      ? plan.blockRows / plan.tile.rows * plan.leftPanelStride
                  : plan.widensLeft ? plan.blockRows * plan.leftRowStride
                                    : 0;
  plan.keepsSums = shape.types.areResultsRounded() && plan.blockDepth < shape.k;
  int64_t sumsSize = plan.keepsSums ? plan.itemRows * plan.itemColumns : 0;
  plan.scratchSize =
      llvm::alignTo(plan.rightSize + plan.leftSize + sumsSize, 64 / bytes);
  return plan;
}

namespace {

/// Writes the body of the stage.
class GemmWriter {
public:
  GemmWriter(OpBuilder &builder, func::FuncOp stage, const GemmShape &shape,
             const GemmPlan &plan, const CpuTarget &target,
             GemmEpilogue epilogue)
      : write(builder, stage.getLoc(), shape.types.computed(), target),
        shape(shape), plan(plan), epilogue(epilogue), a(stage.getArgument(0)),
        b(stage.getArgument(1)), c(stage.getArgument(2)),
        extra(stage.getArguments().drop_front(3).drop_back(4)),
        scratch(stage.getArgument(stage.getNumArguments() - 4)),
        range(getRange(stage)) {}

  void emit();

private:
  /// A block of k, the same for all tiles of an item.
  struct Depth {
    Value begin, size, isFirst, isLast;
    int64_t factor; ///< Divides the size.
  };

  void emitDepthBlock(Value m0, Value mEnd, Value n0, Value nEnd, Value isFresh,
                      const Depth &depth);
  void packRight(Value n0, Value nEnd, const Depth &depth);
  void packLeft(Value i0, Value iEnd, const Depth &depth);
  void widenLeft(Value i0, Value iEnd, const Depth &depth);
  void emitRows(Value i0, Value iEnd, Value column, Value panel,
                int64_t columns, const Depth &depth);
  void emitTile(Value row, Value leftBase, Value column, Value panel,
                int64_t rows, int64_t columns, const Depth &depth);
  /// Rows of C, or of the sums that become its elements.
  struct Target {
    Value buffer, place;
    int64_t rowStride;
  };
  Target findPartial(const Target &result, Value row, Value column);
  SmallVector<Value> addPrevious(ArrayRef<Value> sums, const Target &result,
                                 const Target &partial, int64_t rows,
                                 int64_t columns, const Depth &depth);
  void finish(ArrayRef<Value> sums, const Target &target, Value row,
              Value column, int64_t rows, int64_t columns, bool isFinal);

  bool hasOneDepthBlock() const { return plan.blockDepth >= shape.k; }
  int64_t tailColumns() const { return shape.n % plan.width; }
  int64_t tailRows() const { return shape.m % plan.tile.rows; }

  TileWriter write;
  const GemmShape &shape;
  const GemmPlan &plan;
  GemmEpilogue epilogue;
  Value a, b, c;
  ValueRange extra;
  Value scratch;
  StageRange range;
  Value rightBase, leftBase; ///< Where this worker's panels begin.
  Value itemRow, itemColumn; ///< The first of the item.
};

} // namespace

void GemmWriter::emit() {
  write.enter(*write.builder.getInsertionBlock());
  rightBase = write.mul(range.worker, plan.scratchSize);
  leftBase = write.add(rightBase, plan.rightSize);
  write.loop(range.begin, range.end, 1, [&](Value item) {
    Value m0 = write.mul(write.rem(item, plan.rowItems), plan.itemRows);
    Value n0 = write.mul(write.div(item, plan.rowItems), plan.itemColumns);
    Value mEnd = write.min(write.add(m0, plan.itemRows), write.index(shape.m));
    Value nEnd =
        write.min(write.add(n0, plan.itemColumns), write.index(shape.n));
    itemRow = m0;
    itemColumn = n0;
    if (hasOneDepthBlock()) {
      // Items of the same columns follow each other and share the panels.
      Value isFresh = arith::OrIOp::create(write.builder, write.loc,
                                           write.isEqual(item, range.begin),
                                           write.isEqual(m0, write.index(0)));
      Value yes = arith::ConstantIntOp::create(write.builder, write.loc, 1, 1);
      emitDepthBlock(m0, mEnd, n0, nEnd, isFresh,
                     {write.index(0), write.index(shape.k), yes, yes, shape.k});
      return;
    }
    write.loop(
        write.index(0), write.index(shape.k), plan.blockDepth, [&](Value k0) {
          Value kEnd = write.add(k0, plan.blockDepth);
          Value total = write.index(shape.k);
          bool isEven = shape.k % plan.blockDepth == 0;
          Depth depth;
          depth.begin = k0;
          depth.size = isEven ? write.index(plan.blockDepth)
                              : write.sub(write.min(kEnd, total), k0);
          depth.isFirst = write.isEqual(k0, write.index(0));
          depth.isLast = arith::CmpIOp::create(
              write.builder, write.loc, arith::CmpIPredicate::uge, kEnd, total);
          depth.factor =
              isEven ? plan.blockDepth
                     : std::gcd(plan.blockDepth, shape.k % plan.blockDepth);
          emitDepthBlock(m0, mEnd, n0, nEnd, Value(), depth);
        });
  });
  func::ReturnOp::create(write.builder, write.loc);
}

void GemmWriter::emitDepthBlock(Value m0, Value mEnd, Value n0, Value nEnd,
                                Value isFresh, const Depth &depth) {
  if (isFresh)
    write.branch(isFresh, [&] { packRight(n0, nEnd, depth); });
  else
    packRight(n0, nEnd, depth);
  Value wholeEnd = write.min(nEnd, write.index(shape.n - tailColumns()));
  write.loop(m0, mEnd, plan.blockRows, [&](Value i0) {
    Value iEnd = write.min(write.add(i0, plan.blockRows), mEnd);
    if (plan.packsLeft)
      packLeft(i0, iEnd, depth);
    if (plan.widensLeft)
      widenLeft(i0, iEnd, depth);
    auto panelOf = [&](Value column) {
      Value number = write.div(write.sub(column, n0), plan.width);
      return write.add(rightBase, write.mul(number, plan.rightPanelStride));
    };
    write.loop(n0, wholeEnd, plan.width, [&](Value column) {
      emitRows(i0, iEnd, column, panelOf(column), plan.width, depth);
    });
    if (tailColumns() != 0)
      write.branch(write.isBelow(wholeEnd, nEnd), [&] {
        emitRows(i0, iEnd, wholeEnd, panelOf(wholeEnd), tailColumns(), depth);
      });
  });
}

void GemmWriter::packRight(Value n0, Value nEnd, const Depth &depth) {
  auto pack = [&](Value column, int64_t columns) {
    Value number = write.div(write.sub(column, n0), plan.width);
    Value panel =
        write.add(rightBase, write.mul(number, plan.rightPanelStride));
    Value from = write.add(write.mul(depth.begin, shape.bRowStride),
                           write.mul(column, shape.bColumnStride));
    emitPackPanel(write, {b, from, shape.bRowStride, shape.bColumnStride},
                  depth.size, depth.factor, columns,
                  llvm::alignTo(columns, write.lanes), scratch, panel);
  };
  Value wholeEnd = write.min(nEnd, write.index(shape.n - tailColumns()));
  write.loop(n0, wholeEnd, plan.width,
             [&](Value column) { pack(column, plan.width); });
  if (tailColumns() != 0)
    write.branch(write.isBelow(wholeEnd, nEnd),
                 [&] { pack(wholeEnd, tailColumns()); });
}

// Columns of A are contiguous: for each k, a column is read once and dealt out
// to the panels, so that every line of A is touched once.
void GemmWriter::packLeft(Value i0, Value iEnd, const Depth &depth) {
  int64_t rows = plan.tile.rows;
  Value wholeEnd = write.min(iEnd, write.index(shape.m - tailRows()));
  int64_t wide = llvm::PowerOf2Ceil(rows);
  Value tiles = write.div(write.sub(wholeEnd, i0), rows);
  // A register is wider than a row of the panel. The surplus is overwritten by
  // the next row, or falls into the gap between panels; only the last tile of A
  // has no room for such reads.
  int64_t wideLimit = shape.m - tailRows();
  if (wide - rows > tailRows())
    wideLimit = std::max<int64_t>(0, wideLimit - rows);
  Value wideEnd = write.max(i0, write.min(wholeEnd, write.index(wideLimit)));
  Value wideTiles = write.div(write.sub(wideEnd, i0), rows);
  write.loop(write.index(0), depth.size, 1, [&](Value k) {
    Value from = write.add(
        i0, write.mul(write.add(depth.begin, k), shape.aColumnStride));
    Value to = write.add(leftBase, write.mul(k, rows));
    auto copy = [&](Value tile, int64_t count) {
      write.store(write.load(a, write.add(from, write.mul(tile, rows)), count),
                  scratch,
                  write.add(to, write.mul(tile, plan.leftPanelStride)));
    };
    write.loop(write.index(0), wideTiles, 1,
               [&](Value tile) { copy(tile, wide); });
    write.loop(wideTiles, tiles, 1, [&](Value tile) { copy(tile, rows); });
    if (tailRows() != 0)
      write.branch(write.isBelow(wholeEnd, iEnd),
                   [&] { copy(tiles, tailRows()); });
  });
}

void GemmWriter::widenLeft(Value i0, Value iEnd, const Depth &depth) {
  write.loop(i0, iEnd, 1, [&](Value row) {
    Value from = write.add(write.mul(row, shape.aRowStride), depth.begin);
    Value to =
        write.add(leftBase, write.mul(write.sub(row, i0), plan.leftRowStride));
    auto copy = [&](Value begin, Value end, int64_t count) {
      write.loop(begin, end, count, [&](Value k) {
        write.store(write.load(a, write.add(from, k), count), scratch,
                    write.add(to, k));
      });
    };
    Value whole = write.mul(write.div(depth.size, write.lanes), write.lanes);
    copy(write.index(0), whole, write.lanes);
    if (depth.factor % write.lanes != 0)
      copy(whole, depth.size, 1);
  });
}

void GemmWriter::emitRows(Value i0, Value iEnd, Value column, Value panel,
                          int64_t columns, const Depth &depth) {
  auto left = [&](Value row) {
    if (plan.packsLeft) {
      Value number = write.div(write.sub(row, i0), plan.tile.rows);
      return write.add(leftBase, write.mul(number, plan.leftPanelStride));
    }
    if (plan.widensLeft)
      return write.add(leftBase,
                       write.mul(write.sub(row, i0), plan.leftRowStride));
    return write.add(write.mul(row, shape.aRowStride), depth.begin);
  };
  Value wholeEnd = write.min(iEnd, write.index(shape.m - tailRows()));
  write.loop(i0, wholeEnd, plan.tile.rows, [&](Value row) {
    emitTile(row, left(row), column, panel, plan.tile.rows, columns, depth);
  });
  if (tailRows() != 0)
    write.branch(write.isBelow(wholeEnd, iEnd), [&] {
      emitTile(wholeEnd, left(wholeEnd), column, panel, tailRows(), columns,
               depth);
    });
}

void GemmWriter::emitTile(Value row, Value leftPlace, Value column, Value panel,
                          int64_t rows, int64_t columns, const Depth &depth) {
  Target result = {c, write.add(write.mul(row, shape.cRowStride), column),
                   shape.cRowStride};
  int64_t vectors = llvm::divideCeil(columns, write.lanes);
  ScalarOperand left = {a, leftPlace, shape.aRowStride, shape.aColumnStride};
  if (plan.packsLeft)
    left = {scratch, leftPlace, 1, plan.tile.rows};
  if (plan.widensLeft)
    left = {scratch, leftPlace, plan.leftRowStride, 1};
  VectorOperand right = {scratch, panel, vectors * write.lanes};
  // C is needed only when the tile is done; by then it has arrived.
  for (int64_t i = 0; i < rows; ++i)
    write.prefetchRow(c, write.add(result.place, i * shape.cRowStride),
                      columns);
  SmallVector<Value> zeros(rows * vectors, write.zeros(write.lanes));
  SmallVector<Value> sums = emitTileProduct(write, rows, vectors, left, right,
                                            depth.size, depth.factor, zeros);
  Target partial = findPartial(result, row, column);
  sums = addPrevious(sums, result, partial, rows, columns, depth);
  if (!epilogue && !plan.keepsSums) {
    finish(sums, result, row, column, rows, columns, false);
    return;
  }
  write.branch(
      depth.isLast,
      [&] { finish(sums, result, row, column, rows, columns, true); },
      [&] { finish(sums, partial, row, column, rows, columns, false); });
}

GemmWriter::Target GemmWriter::findPartial(const Target &result, Value row,
                                           Value column) {
  if (!plan.keepsSums)
    return result;
  Value place = write.add(write.mul(write.sub(row, itemRow), plan.itemColumns),
                          write.sub(column, itemColumn));
  place = write.add(place, write.add(leftBase, plan.leftSize));
  return {scratch, place, plan.itemColumns};
}

// The first block of k is added to C if C accumulates, later ones to those
// before.
SmallVector<Value> GemmWriter::addPrevious(ArrayRef<Value> sums,
                                           const Target &result,
                                           const Target &partial, int64_t rows,
                                           int64_t columns,
                                           const Depth &depth) {
  auto addAll = [&](const Target &target) {
    SmallVector<Value> values;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t j = 0; j < columns; j += write.lanes) {
        Value previous = write.loadPadded(
            target.buffer, write.add(target.place, row * target.rowStride + j),
            std::min(write.lanes, columns - j));
        values.push_back(arith::AddFOp::create(write.builder, write.loc,
                                               sums[values.size()], previous));
      }
    return values;
  };
  auto addFirst = [&] {
    return shape.accumulate ? addAll(result) : SmallVector<Value>(sums);
  };
  if (hasOneDepthBlock() || (shape.accumulate && !plan.keepsSums))
    return addFirst();
  auto choice = scf::IfOp::create(
      write.builder, write.loc, depth.isFirst,
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(write.builder, write.loc, addFirst());
      },
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(write.builder, write.loc, addAll(partial));
      });
  return SmallVector<Value>(choice.getResults());
}

void GemmWriter::finish(ArrayRef<Value> sums, const Target &target, Value row,
                        Value column, int64_t rows, int64_t columns,
                        bool isFinal) {
  for (auto [number, sum] : llvm::enumerate(sums)) {
    int64_t vectors = sums.size() / rows;
    int64_t i = number / vectors, j = number % vectors * write.lanes;
    Value values = write.firstLanes(sum, std::min(write.lanes, columns - j));
    if (isFinal && epilogue)
      values = epilogue(write.builder, write.loc, values, write.add(row, i),
                        write.add(column, j), extra);
    write.store(values, target.buffer,
                write.add(target.place, i * target.rowStride + j));
  }
}

// The number of elements from the first to the last.
static int64_t extent(int64_t rows, int64_t rowStride, int64_t columns,
                      int64_t columnStride) {
  return (rows - 1) * rowStride + (columns - 1) * columnStride + 1;
}

SmallVector<Type> getOperandBuffers(const GemmShape &shape) {
  auto flat = [](int64_t size, Type element) -> Type {
    return MemRefType::get(size, element);
  };
  const ElementTypes &types = shape.types;
  return {flat(extent(shape.m, shape.aRowStride, shape.k, shape.aColumnStride),
               types.operands),
          flat(extent(shape.k, shape.bRowStride, shape.n, shape.bColumnStride),
               types.operands),
          flat(extent(shape.m, shape.cRowStride, shape.n, 1), types.results)};
}

static StagePlan listStages(StringRef symbol, const GemmShape &shape,
                            const GemmPlan &plan) {
  StagePlan stages;
  stages.stages.push_back({symbol.str(), plan.rowItems * plan.columnItems});
  stages.scratchBytesPerWorker = plan.scratchSize * shape.types.computedBytes();
  return stages;
}

StagePlan planGemm(StringRef symbol, const GemmShape &shape,
                   const CpuTarget &target, const GemmTuning &tuning) {
  return listStages(symbol, shape, makePlan(shape, target, tuning));
}

StagePlan emitGemm(ModuleOp module, StringRef symbol, const GemmShape &shape,
                   const CpuTarget &target, const GemmTuning &tuning,
                   TypeRange extra, GemmEpilogue epilogue) {
  GemmPlan plan = makePlan(shape, target, tuning);
  SmallVector<Type> buffers = getOperandBuffers(shape);
  buffers.append(extra.begin(), extra.end());
  buffers.push_back(
      MemRefType::get(plan.scratchSize * kMaxWorkers, shape.types.computed()));
  func::FuncOp stage = createStage(module, symbol, buffers);
  markVectorised(stage);
  OpBuilder builder = OpBuilder::atBlockBegin(&stage.front());
  GemmWriter(builder, stage, shape, plan, target, epilogue).emit();
  return listStages(symbol, shape, plan);
}

} // namespace kiln::cpu
