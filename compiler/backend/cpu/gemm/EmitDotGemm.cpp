// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   for each item (a block of C)
//     for each block of depth: pack the rows of A
//       for each group of columns: pack B
//         for each panel of B, for each panel of A: a block of sums
// Sums are f32 and leave the item when its depth is done, rounded to the type
// of C. With one block of depth they are those of one block of C at a time.
#include "compiler/backend/cpu/gemm/EmitDotGemm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace kiln::cpu {

namespace {

/// Sizes in rows and columns; of scratch, in bytes of each worker.
struct DotPlan {
  int64_t itemRows, itemColumns, rowItems, columnItems;
  int64_t blockDepth, groupPanels, panelStride;
  int64_t sumColumns; ///< From row to row of the sums.
  int64_t leftBytes, rightBytes, sumsBytes;

  int64_t scratchBytes() const { return leftBytes + rightBytes + sumsBytes; }
  bool hasOneDepthBlock(const GemmShape &shape) const {
    return blockDepth >= shape.k;
  }
};

} // namespace

// Packing an element of B costs as much as multiplying it by so many rows, and
// likewise for A: measured where both come from memory.
constexpr double kRightCost = 120, kLeftCost = 60;

static void chooseItems(const GemmShape &shape, const CpuTarget &target,
                        const DotGemmTuning &tuning, DotPlan &plan) {
  int64_t rowBlocks = llvm::divideCeil(shape.m, kDotBlock),
          columnBlocks = llvm::divideCeil(shape.n, kDotBlock);
  // The packed rows of A are read for each panel of B.
  int64_t rowLimit = std::max<int64_t>(
      1, target.l2Bytes / 2 /
             (getPanelStride(plan.blockDepth) * int64_t(sizeof(int16_t))));
  // As are sums over several blocks of depth.
  int64_t sumLimit = plan.hasOneDepthBlock(shape)
                         ? rowBlocks * columnBlocks
                         : std::max<int64_t>(1, target.l2Bytes / 4 /
                                                    (kDotStepElements *
                                                     int64_t(sizeof(float))));
  double best = 0;
  for (int64_t rows = 1; rows <= std::min(rowBlocks, rowLimit); ++rows)
    for (int64_t columns = 1; columns <= columnBlocks; ++columns) {
      if (rows * columns > sumLimit && columns > 1)
        break;
      int64_t rowItems = llvm::divideCeil(rowBlocks, rows),
              columnItems = llvm::divideCeil(columnBlocks, columns);
      int64_t items = rowItems * columnItems;
      double packing = kRightCost / double(rows * kDotBlock) +
                       kLeftCost / double(columns * kDotBlock);
      // Blocks at the edge are as much work as others.
      double waste = double(rowItems * rows * columnItems * columns) /
                     double(rowBlocks * columnBlocks);
      double cost =
          (1 + packing) * waste * estimateImbalance(items) + 0.0005 * items;
      if (best != 0 && cost >= best)
        continue;
      best = cost;
      plan.itemRows = rows * kDotBlock;
      plan.itemColumns = columns * kDotBlock;
    }
  auto round = [](int64_t wanted, int64_t most) {
    return llvm::alignTo(std::min(wanted, most), uint64_t(kDotBlock));
  };
  if (tuning.itemRows)
    plan.itemRows = round(tuning.itemRows, shape.m);
  if (tuning.itemColumns)
    plan.itemColumns = round(tuning.itemColumns, shape.n);
  plan.rowItems = llvm::divideCeil(shape.m, plan.itemRows);
  plan.columnItems = llvm::divideCeil(shape.n, plan.itemColumns);
}

static DotPlan makePlan(const GemmShape &shape, const CpuTarget &target,
                        const DotGemmTuning &tuning) {
  DotPlan plan;
  int64_t blocks = llvm::divideCeil(shape.k, tuning.blockDepth);
  plan.blockDepth =
      llvm::alignTo(llvm::divideCeil(shape.k, blocks), uint64_t(kDotBlock));
  chooseItems(shape, target, tuning, plan);
  plan.groupPanels = std::max<int64_t>(
      1, std::min(tuning.groupColumns, plan.itemColumns) / kDotBlock);
  plan.panelStride = getPanelStride(plan.blockDepth);
  bool keepsSums = !plan.hasOneDepthBlock(shape);
  plan.sumColumns = keepsSums ? plan.itemColumns : kDotBlock;
  int64_t sumRows = keepsSums ? plan.itemRows : kDotBlock;
  auto bytes = [](int64_t elements, int64_t size) {
    return int64_t(llvm::alignTo(elements * size, 64));
  };
  plan.leftBytes = bytes(plan.itemRows / kDotBlock * plan.panelStride, 2);
  plan.rightBytes = bytes(plan.groupPanels * plan.panelStride, 2);
  plan.sumsBytes = bytes(sumRows * plan.sumColumns, sizeof(float));
  return plan;
}

namespace {

class DotGemmWriter {
public:
  DotGemmWriter(OpBuilder &builder, func::FuncOp stage, const GemmShape &shape,
                const DotPlan &plan, const CpuTarget &target,
                GemmEpilogue epilogue)
      : write(builder, stage.getLoc(), shape.types.computed(), target),
        dots(write, findDotUnit(target, shape.types.operands),
             target.expandsDots),
        shape(shape), plan(plan), epilogue(epilogue), a(stage.getArgument(0)),
        b(stage.getArgument(1)), c(stage.getArgument(2)),
        extra(stage.getArguments().drop_front(3).drop_back(4)),
        scratch(stage.getArgument(stage.getNumArguments() - 4)),
        range(getRange(stage)) {}

  void emit();

private:
  /// The block of C that an item is.
  struct Item {
    Value row, endRow, column, endColumn;
  };
  struct Depth {
    Value begin, size, steps, isFirst, isLast;
  };

  void findScratch();
  void emitItem(const Item &item, Value isLeftFresh);
  void emitDepth(const Item &item, const Depth &depth, Value isLeftFresh);
  void packLeft(const Item &item, const Depth &depth);
  void emitGroup(const Item &item, const Depth &depth, Value column);
  void finishBlock(const DotWriter::Operand &sums, Value row, Value rows,
                   Value column);
  void finishRow(const DotWriter::Operand &sums, Value row, Value place,
                 Value column, int64_t columns);
  int64_t tailColumns() const { return shape.n % kDotBlock; }

  TileWriter write;
  DotWriter dots;
  const GemmShape &shape;
  const DotPlan &plan;
  GemmEpilogue epilogue;
  Value a, b, c;
  ValueRange extra;
  Value scratch;
  StageRange range;
  Value left, right, sums; ///< Views of this worker's scratch.
};

} // namespace

void DotGemmWriter::findScratch() {
  OpBuilder &builder = write.builder;
  Value base = write.mul(range.worker, plan.scratchBytes());
  auto view = [&](int64_t offset, int64_t bytes, Type element) {
    auto type =
        MemRefType::get(bytes * 8 / element.getIntOrFloatBitWidth(), element);
    return memref::ViewOp::create(builder, write.loc, type, scratch,
                                  write.add(base, offset), ValueRange());
  };
  Type narrow = shape.types.operands, wide = shape.types.computed();
  left = view(0, plan.leftBytes, narrow);
  right = view(plan.leftBytes, plan.rightBytes, narrow);
  sums = view(plan.leftBytes + plan.rightBytes, plan.sumsBytes, wide);
}

// Items of the same rows follow each other and share the packed rows of A.
void DotGemmWriter::emit() {
  write.enter(*write.builder.getInsertionBlock());
  findScratch();
  dots.begin();
  write.loop(range.begin, range.end, 1, [&](Value number) {
    Value columnItem = write.rem(number, plan.columnItems);
    Item item;
    item.row = write.mul(write.div(number, plan.columnItems), plan.itemRows);
    item.column = write.mul(columnItem, plan.itemColumns);
    item.endRow =
        write.min(write.add(item.row, plan.itemRows), write.index(shape.m));
    item.endColumn = write.min(write.add(item.column, plan.itemColumns),
                               write.index(shape.n));
    emitItem(item,
             arith::OrIOp::create(write.builder, write.loc,
                                  write.isEqual(number, range.begin),
                                  write.isEqual(columnItem, write.index(0))));
  });
  dots.end();
  func::ReturnOp::create(write.builder, write.loc);
}

void DotGemmWriter::emitItem(const Item &item, Value isLeftFresh) {
  auto constant = [&](bool value) -> Value {
    return arith::ConstantIntOp::create(write.builder, write.loc, value, 1);
  };
  auto steps = [&](Value size) {
    return write.div(write.add(size, kDotBlock - 1), kDotBlock);
  };
  Value total = write.index(shape.k);
  if (plan.hasOneDepthBlock(shape))
    return emitDepth(item,
                     {write.index(0), total,
                      write.index(llvm::divideCeil(shape.k, kDotBlock)),
                      constant(true), constant(true)},
                     isLeftFresh);
  write.loop(write.index(0), total, plan.blockDepth, [&](Value begin) {
    Value end = write.add(begin, plan.blockDepth);
    Value size = write.sub(write.min(end, total), begin);
    Value isLast = arith::CmpIOp::create(write.builder, write.loc,
                                         arith::CmpIPredicate::uge, end, total);
    emitDepth(item,
              {begin, size, steps(size), write.isEqual(begin, write.index(0)),
               isLast},
              constant(true));
  });
}

void DotGemmWriter::emitDepth(const Item &item, const Depth &depth,
                              Value isLeftFresh) {
  write.branch(isLeftFresh, [&] { packLeft(item, depth); });
  write.loop(item.column, item.endColumn, plan.groupPanels * kDotBlock,
             [&](Value column) { emitGroup(item, depth, column); });
}

void DotGemmWriter::packLeft(const Item &item, const Depth &depth) {
  write.loop(item.row, item.endRow, kDotBlock, [&](Value row) {
    Value from = write.add(write.mul(row, shape.aRowStride),
                           write.mul(depth.begin, shape.aColumnStride));
    Value rows = write.min(write.sub(item.endRow, row), write.index(kDotBlock));
    Value number = write.div(write.sub(row, item.row), kDotBlock);
    dots.packLeft({a, from, shape.aColumnStride, shape.aRowStride}, depth.size,
                  rows, left, write.mul(number, plan.panelStride));
  });
}

void DotGemmWriter::emitGroup(const Item &item, const Depth &depth,
                              Value column) {
  Value columns = write.min(write.sub(item.endColumn, column),
                            write.index(plan.groupPanels * kDotBlock));
  Value panels = write.div(write.add(columns, kDotBlock - 1), kDotBlock);
  Value from = write.add(write.mul(depth.begin, shape.bRowStride),
                         write.mul(column, shape.bColumnStride));
  dots.packRight({b, from, shape.bRowStride, shape.bColumnStride}, depth.size,
                 columns, panels, right, write.index(0), plan.panelStride);
  write.loop(write.index(0), panels, 1, [&](Value panel) {
    Value first = write.add(column, write.mul(panel, kDotBlock));
    write.loop(item.row, item.endRow, kDotBlock, [&](Value row) {
      Value number = write.div(write.sub(row, item.row), kDotBlock);
      Value place = write.index(0);
      if (!plan.hasOneDepthBlock(shape))
        place = write.add(write.mul(write.sub(row, item.row), plan.sumColumns),
                          write.sub(first, item.column));
      DotWriter::Operand target = {sums, place};
      dots.multiply({left, write.mul(number, plan.panelStride)},
                    {right, write.mul(panel, plan.panelStride)}, depth.steps,
                    target, plan.sumColumns, depth.isFirst);
      Value rows =
          write.min(write.sub(item.endRow, row), write.index(kDotBlock));
      write.branch(depth.isLast,
                   [&] { finishBlock(target, row, rows, first); });
    });
  });
}

void DotGemmWriter::finishBlock(const DotWriter::Operand &block, Value row,
                                Value rows, Value column) {
  auto finish = [&](int64_t columns) {
    write.loop(write.index(0), rows, 1, [&](Value i) {
      finishRow(block, write.add(row, i),
                write.add(block.base, write.mul(i, plan.sumColumns)), column,
                columns);
    });
  };
  if (tailColumns() == 0)
    return finish(kDotBlock);
  write.branch(
      write.isEqual(column, write.index(shape.n - tailColumns())),
      [&] { finish(tailColumns()); }, [&] { finish(kDotBlock); });
}

void DotGemmWriter::finishRow(const DotWriter::Operand &block, Value row,
                              Value place, Value column, int64_t columns) {
  Value target = write.add(write.mul(row, shape.cRowStride), column);
  for (int64_t j = 0; j < columns; j += write.lanes) {
    int64_t size = std::min(write.lanes, columns - j);
    Value to = write.add(target, j);
    Value values = write.load(block.buffer, write.add(place, j), size);
    if (shape.accumulate)
      values = arith::AddFOp::create(write.builder, write.loc, values,
                                     write.load(c, to, size));
    if (epilogue)
      values = epilogue(write.builder, write.loc, values, row,
                        write.add(column, j), extra);
    write.store(values, c, to);
  }
}

static StagePlan listStages(StringRef symbol, const DotPlan &plan) {
  StagePlan stages;
  stages.stages.push_back({symbol.str(), plan.rowItems * plan.columnItems});
  stages.scratchBytesPerWorker = plan.scratchBytes();
  return stages;
}

StagePlan planDotGemm(StringRef symbol, const GemmShape &shape,
                      const CpuTarget &target, const DotGemmTuning &tuning) {
  return listStages(symbol, makePlan(shape, target, tuning));
}

StagePlan emitDotGemm(ModuleOp module, StringRef symbol, const GemmShape &shape,
                      const CpuTarget &target, const DotGemmTuning &tuning,
                      TypeRange extra, GemmEpilogue epilogue) {
  DotPlan plan = makePlan(shape, target, tuning);
  SmallVector<Type> buffers = getOperandBuffers(shape);
  buffers.append(extra.begin(), extra.end());
  buffers.push_back(MemRefType::get(plan.scratchBytes() * kMaxWorkers,
                                    IntegerType::get(module.getContext(), 8)));
  func::FuncOp stage = createStage(module, symbol, buffers);
  markVectorised(stage);
  OpBuilder builder = OpBuilder::atBlockBegin(&stage.front());
  DotGemmWriter(builder, stage, shape, plan, target, epilogue).emit();
  return listStages(symbol, plan);
}

} // namespace kiln::cpu
