// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A convolution and its gradient by the image are one loop nest: a matrix
// product whose rows are places of the target, whose columns are the target's
// channels and whose depth runs over the taps of the filter and the source's
// channels. Nothing is copied but the filter, which a first stage packs into
// panels. Along an axis, places that see the same taps form a class; in a
// product of classes every row has the same depth, so that
//   - taps that see only padding cost nothing: in a 1x1 image one of nine taps
//     of a 3x3 filter is left, in a 2x2 image four;
//   - the gradient of a strided convolution is one class per phase, each with
//     the taps that hit.
// The depth of a row is contiguous along the taps of one filter row. Rows of a
// tile are found by six places in the source, so that a tile need not end where
// a row of the image does.
#include "compiler/backend/cpu/convolution/EmitConvolution.h"

#include "compiler/backend/cpu/convolution/SlidingPlan.h"
#include "compiler/backend/cpu/gemm/EmitGemm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <numeric>

using namespace mlir;

namespace kiln::cpu {

namespace {

/// Writes the stages.
class SlidingWriter {
public:
  SlidingWriter(ModuleOp module, StringRef symbol,
                const SlidingProduct &product, const SlidingPlan &plan,
                const CpuTarget &target)
      : module(module), symbol(symbol.str()), product(product), plan(plan),
        builder(module.getContext()),
        write(builder, module.getLoc(), product.types.computed(), target) {}

  void emit();

private:
  /// The rows and taps of an item; rows are numbered within the class.
  struct Item {
    Value firstRow, endRow;
    Value image, y, x; ///< Of the first row.
    Value fields[kClassFieldCount];
  };
  /// A block of depth.
  struct Depth {
    Value tapRow, tapRows, tapColumn, tapColumns, channel, channels;
    Value isFirst, isLast;
  };
  /// Offsets of the rows of a tile in the source, in the target, and in the
  /// sums that become its elements.
  struct Rows {
    SmallVector<Value> source, target, sums;
  };

  void enterStage(StringRef stageSymbol);
  void emitPack();
  void packRow(Value taps, Value panel, Value channel, int64_t columns);
  void emitProduct();
  Item findItem(Value classes, Value rowItem);
  void forDepth(const Item &item, function_ref<void(const Depth &)> body);
  Rows findRows(const Item &item, Value row);
  void emitPanel(const Item &item, const Depth &depth, Value column,
                 int64_t columns);
  SmallVector<Value> emitTile(const Item &item, const Depth &depth,
                              const Rows &rows, Value panel, int64_t vectors);
  void finish(const Depth &depth, const Rows &rows, Value column,
              int64_t columns, ArrayRef<Value> products);
  bool hasOneBlock() const { return plan.block.isWhole(product); }
  int64_t tailColumns() const { return product.targetChannels % plan.width; }
  int64_t rowWidth(int64_t columns) const {
    return llvm::alignTo(columns, write.lanes);
  }

  ModuleOp module;
  std::string symbol;
  const SlidingProduct &product;
  const SlidingPlan &plan;
  OpBuilder builder;
  TileWriter write;
  Value source, filter, result, scratch;
  Value sums; ///< Where this worker's begin.
  StageRange range;
};

} // namespace

// Elements of the packed filter.
static int64_t getPackedSize(const SlidingPlan &plan, int64_t bytes) {
  return llvm::alignTo(plan.panels * plan.panelStride, 64 / bytes);
}

// The packed filter, and the product.
static StagePlan listStages(StringRef symbol, const SlidingProduct &product,
                            const SlidingPlan &plan) {
  StagePlan stages;
  stages.stages = {{(symbol + "_pack").str(), plan.panels * product.channels},
                   {symbol.str(), plan.rowItems * plan.columnItems}};
  int64_t bytes = product.types.computedBytes();
  stages.sharedScratchBytes = getPackedSize(plan, bytes) * bytes;
  stages.scratchBytesPerWorker = plan.sumsSize * bytes;
  return stages;
}

void SlidingWriter::enterStage(StringRef stageSymbol) {
  const ElementTypes &types = product.types;
  const AxisPlan &y = product.rows, &x = product.columns;
  int64_t packed = getPackedSize(plan, types.computedBytes());
  SmallVector<Type> buffers = {
      MemRefType::get(product.batch * y.sourceSize * x.sourceSize *
                          product.channels,
                      types.operands),
      MemRefType::get(product.filterSize, types.operands),
      MemRefType::get(product.batch * y.targetSize * x.targetSize *
                          product.targetChannels,
                      types.results),
      MemRefType::get(packed + plan.sumsSize * kMaxWorkers, types.computed())};
  func::FuncOp stage = createStage(module, stageSymbol, buffers);
  markVectorised(stage);
  builder.setInsertionPointToStart(&stage.front());
  write.enter(stage.front());
  source = stage.getArgument(0);
  filter = stage.getArgument(1);
  result = stage.getArgument(2);
  scratch = stage.getArgument(3);
  range = getRange(stage);
  sums = write.add(write.mul(range.worker, plan.sumsSize), packed);
}

//===----------------------------------------------------------------------===//
// The filter
//===----------------------------------------------------------------------===//

void SlidingWriter::emitPack() {
  enterStage(symbol + "_pack");
  SmallVector<int64_t> offsets;
  for (int64_t row : product.rows.taps)
    for (int64_t column : product.columns.taps)
      offsets.push_back(row * product.filterWidth + column);
  if (offsets.empty())
    offsets.push_back(0); // No window sees the image; a table needs an entry.
  Value taps = emitTable(write, module, symbol + "_taps", offsets);
  write.loop(range.begin, range.end, 1, [&](Value item) {
    Value panel = write.div(item, product.channels);
    Value channel = write.rem(item, product.channels);
    if (tailColumns() == 0)
      return packRow(taps, panel, channel, plan.width);
    write.branch(
        write.isEqual(panel, write.index(plan.panels - 1)),
        [&] { packRow(taps, panel, channel, tailColumns()); },
        [&] { packRow(taps, panel, channel, plan.width); });
  });
  func::ReturnOp::create(builder, write.loc);
}

// One row of the panel for each tap.
void SlidingWriter::packRow(Value taps, Value panel, Value channel,
                            int64_t columns) {
  int64_t width = rowWidth(columns);
  Value zero = arith::ConstantOp::create(
      builder, write.loc,
      cast<TypedAttr>(builder.getZeroAttr(product.types.computed())));
  Value from = write.add(write.mul(panel, plan.width * product.targetStride),
                         write.mul(channel, product.channelStride));
  Value to =
      write.add(write.mul(panel, plan.panelStride), write.mul(channel, width));
  write.loop(
      write.index(0), write.index(product.tapCount()), 1, [&](Value tap) {
        Value first = write.add(from, readTable(write, taps, tap));
        Value row = write.add(to, write.mul(tap, product.channels * width));
        for (int64_t column = 0; column < width; column += write.lanes) {
          SmallVector<Value> lanes;
          for (int64_t lane = column; lane < column + write.lanes; ++lane)
            lanes.push_back(
                lane < columns
                    ? write.loadScalar(
                          filter, write.add(first, lane * product.targetStride))
                    : zero);
          write.store(
              vector::FromElementsOp::create(
                  builder, write.loc, write.vectorType(write.lanes), lanes),
              scratch, write.add(row, column));
        }
      });
}

//===----------------------------------------------------------------------===//
// The product
//===----------------------------------------------------------------------===//

void SlidingWriter::emitProduct() {
  enterStage(symbol);
  SmallVector<int64_t> values;
  for (const auto &fields : plan.classes)
    values.append(fields.begin(), fields.end());
  Value classes = emitTable(write, module, symbol + "_classes", values);
  write.loop(range.begin, range.end, 1, [&](Value number) {
    Item item = findItem(classes, write.rem(number, plan.rowItems));
    Value n0 = write.mul(write.div(number, plan.rowItems), plan.itemColumns);
    Value nEnd = write.min(write.add(n0, plan.itemColumns),
                           write.index(product.targetChannels));
    Value wholeEnd =
        write.min(nEnd, write.index(product.targetChannels - tailColumns()));
    forDepth(item, [&](const Depth &depth) {
      write.loop(n0, wholeEnd, plan.width, [&](Value column) {
        emitPanel(item, depth, column, plan.width);
      });
      if (tailColumns() != 0)
        write.branch(write.isBelow(wholeEnd, nEnd),
                     [&] { emitPanel(item, depth, wholeEnd, tailColumns()); });
    });
  });
  func::ReturnOp::create(builder, write.loc);
}

SlidingWriter::Item SlidingWriter::findItem(Value classes, Value rowItem) {
  // The last class that begins at or before the item.
  int64_t count = plan.classes.size();
  Value number =
      write.fold(write.index(1), write.index(count), 1, write.index(0),
                 [&](Value candidate, Value found) -> Value {
                   Value first = readTable(
                       write, classes, write.mul(candidate, kClassFieldCount));
                   return arith::SelectOp::create(builder, write.loc,
                                                  write.isBelow(rowItem, first),
                                                  found, candidate);
                 });
  Item item;
  for (int64_t field = 0; field < kClassFieldCount; ++field)
    item.fields[field] = readTable(
        write, classes, write.add(write.mul(number, kClassFieldCount), field));
  auto times = [&](Value left, Value right) -> Value {
    return arith::MulIOp::create(builder, write.loc, left, right);
  };
  auto over = [&](Value left, Value right) -> Value {
    return arith::DivUIOp::create(builder, write.loc, left, right);
  };
  item.firstRow = times(write.sub(rowItem, item.fields[kFirstItem]),
                        item.fields[kItemRows]);
  item.endRow = write.min(write.add(item.firstRow, item.fields[kItemRows]),
                          item.fields[kRows]);
  Value line = over(item.firstRow, item.fields[kWidth]);
  item.x = write.sub(item.firstRow, times(line, item.fields[kWidth]));
  item.image = over(line, item.fields[kHeight]);
  item.y = write.sub(line, times(item.image, item.fields[kHeight]));
  return item;
}

// A class without taps has one empty block, which writes zeros.
void SlidingWriter::forDepth(const Item &item,
                             function_ref<void(const Depth &)> body) {
  Value zero = write.index(0), all = write.index(product.channels);
  Value seen = arith::SelectOp::create(
      builder, write.loc, write.isEqual(item.fields[kTapRows], zero), zero,
      all);
  auto cut = [&](Value total, int64_t all, int64_t size,
                 function_ref<void(Value, Value)> inner) {
    if (size >= all)
      return inner(zero, total);
    write.loop(zero, write.max(total, write.index(1)), size, [&](Value begin) {
      inner(begin, write.min(write.index(size), write.sub(total, begin)));
    });
  };
  cut(item.fields[kTapRows], product.rows.taps.size(), plan.block.rows,
      [&](Value tapRow, Value tapRows) {
        cut(item.fields[kTapColumns], product.columns.taps.size(),
            plan.block.columns, [&](Value tapColumn, Value tapColumns) {
              cut(seen, product.channels, plan.block.channels,
                  [&](Value channel, Value channels) {
                    Value done =
                        write.add(write.add(tapRow, tapColumn), channel);
                    Value left = write.add(
                        write.add(write.sub(item.fields[kTapRows],
                                            write.add(tapRow, tapRows)),
                                  write.sub(item.fields[kTapColumns],
                                            write.add(tapColumn, tapColumns))),
                        write.sub(seen, write.add(channel, channels)));
                    body({tapRow, tapRows, tapColumn, tapColumns, channel,
                          channels, write.isEqual(done, zero),
                          write.isEqual(left, zero)});
                  });
            });
      });
}

// Rows past the end repeat the last one and write the same values.
SlidingWriter::Rows SlidingWriter::findRows(const Item &item, Value row) {
  const AxisPlan &y = product.rows, &x = product.columns;
  Value last = write.sub(write.sub(item.endRow, write.index(1)), item.firstRow);
  Value first = write.sub(row, item.firstRow);
  auto times = [&](Value left, Value right) -> Value {
    return arith::MulIOp::create(builder, write.loc, left, right);
  };
  // Exact while the product of value and divisor is below 2^32.
  auto over = [&](Value value, Value reciprocal) -> Value {
    Value thirtyTwo = write.index(32);
    return arith::ShRUIOp::create(builder, write.loc, times(value, reciprocal),
                                  thirtyTwo);
  };
  Rows rows;
  for (int64_t i = 0; i < plan.tile.rows; ++i) {
    Value step = write.add(item.x, write.min(write.add(first, i), last));
    Value lines = over(step, item.fields[kOverWidth]);
    Value column = write.sub(step, times(lines, item.fields[kWidth]));
    Value line = write.add(item.y, lines);
    Value images = over(line, item.fields[kOverHeight]);
    line = write.sub(line, times(images, item.fields[kHeight]));
    Value image = write.add(item.image, images);
    auto place = [&](int64_t height, int64_t width, int64_t yStep,
                     int64_t xStep, int64_t channels) {
      return write.add(write.add(write.mul(image, height * width * channels),
                                 write.mul(line, yStep * width * channels)),
                       write.mul(column, xStep * channels));
    };
    rows.source.push_back(place(y.sourceSize, x.sourceSize, y.sourceStep,
                                x.sourceStep, product.channels));
    rows.target.push_back(
        write.add(place(y.targetSize, x.targetSize, y.targetStep, x.targetStep,
                        product.targetChannels),
                  item.fields[kTarget]));
    rows.sums.push_back(
        write.add(sums, write.mul(write.add(first, i), plan.itemColumns)));
  }
  return rows;
}

void SlidingWriter::emitPanel(const Item &item, const Depth &depth,
                              Value column, int64_t columns) {
  Value panel = write.mul(write.div(column, plan.width), plan.panelStride);
  int64_t vectors = llvm::divideCeil(columns, write.lanes);
  write.loop(item.firstRow, item.endRow, plan.tile.rows, [&](Value row) {
    Rows rows = findRows(item, row);
    for (Value target : rows.target)
      write.prefetchRow(result, write.add(target, column), columns);
    SmallVector<Value> sums = emitTile(item, depth, rows, panel, vectors);
    finish(depth, rows, column, columns, sums);
  });
}

SmallVector<Value> SlidingWriter::emitTile(const Item &item, const Depth &depth,
                                           const Rows &rows, Value panel,
                                           int64_t vectors) {
  int64_t width = vectors * write.lanes;
  int64_t tapColumns = product.columns.taps.size();
  bool isWhole = plan.block.channels >= product.channels;
  Value length =
      isWhole ? write.mul(depth.tapColumns, product.channels) : depth.channels;
  int64_t factor = product.channels;
  if (!isWhole)
    factor =
        std::gcd(plan.block.channels, product.channels % plan.block.channels);
  SmallVector<Value> zeros(plan.tile.rows * vectors, write.zeros(write.lanes));
  auto loop = scf::ForOp::create(
      builder, write.loc, depth.tapRow, write.add(depth.tapRow, depth.tapRows),
      write.index(1), zeros,
      [&](OpBuilder &, Location, Value tapRow, ValueRange carried) {
        auto place = [&](Value origin, int64_t rowStride) {
          Value taps = write.add(write.mul(tapRow, rowStride), depth.tapColumn);
          return write.add(origin, write.add(write.mul(taps, product.channels),
                                             depth.channel));
        };
        Value from = place(item.fields[kSource], product.columns.sourceSize);
        Value panelRow = place(item.fields[kPanelRow], tapColumns);
        ScalarOperand left = {source, from, 0, 1};
        left.rows = rows.source;
        VectorOperand right = {
            scratch, write.add(panel, write.mul(panelRow, width)), width};
        SmallVector<Value> sums(carried);
        scf::YieldOp::create(builder, write.loc,
                             emitTileProduct(write, plan.tile.rows, vectors,
                                             left, right, length, factor,
                                             sums));
      });
  return SmallVector<Value>(loop.getResults());
}

// Later blocks of depth are added to those before, in the target or, where it
// cannot hold them before they are rounded, in scratch. All is read before
// anything is written, because rows past the end repeat the last one.
void SlidingWriter::finish(const Depth &depth, const Rows &rows, Value column,
                           int64_t columns, ArrayRef<Value> products) {
  int64_t vectors = llvm::divideCeil(columns, write.lanes);
  bool keepsSums = plan.sumsSize != 0;
  auto place = [&](bool isResult, int64_t number) {
    Value row = (isResult ? rows.target : rows.sums)[number / vectors];
    Value first = isResult ? column : write.rem(column, plan.itemColumns);
    return write.add(write.add(row, first), number % vectors * write.lanes);
  };
  auto size = [&](int64_t number) {
    return std::min(write.lanes, columns - number % vectors * write.lanes);
  };
  auto storeAll = [&](bool isResult, ArrayRef<Value> values) {
    for (auto [number, value] : llvm::enumerate(values))
      write.store(write.firstLanes(value, size(number)),
                  isResult ? result : scratch, place(isResult, number));
  };
  auto storeEither = [&](ArrayRef<Value> values) {
    if (!keepsSums)
      return storeAll(true, values);
    write.branch(
        depth.isLast, [&] { storeAll(true, values); },
        [&] { storeAll(false, values); });
  };
  auto addAll = [&] {
    SmallVector<Value> values;
    for (auto [number, value] : llvm::enumerate(products))
      values.push_back(arith::AddFOp::create(
          builder, write.loc, value,
          write.loadPadded(keepsSums ? scratch : result,
                           place(!keepsSums, number), size(number))));
    storeEither(values);
  };
  if (hasOneBlock())
    return storeAll(true, products);
  write.branch(depth.isFirst, [&] { storeEither(products); }, addAll);
}

void SlidingWriter::emit() {
  emitPack();
  emitProduct();
}

//===----------------------------------------------------------------------===//
// Which product
//===----------------------------------------------------------------------===//

static bool isMatrixProduct(const ConvolutionShape &shape) {
  auto isDirect = [](const WindowAxis &axis) {
    return axis.window == 1 && axis.stride == 1 && axis.padding == 0;
  };
  return isDirect(shape.windows.rows) && isDirect(shape.windows.columns);
}

namespace {
/// One side of a filter: how many channels, and elements from one to the next.
struct FilterSide {
  int64_t channels, stride;
};

/// Reads the channels `from` and writes the channels `to`, along axes that
/// `planAxis` lays out.
struct Direction {
  FilterSide from, to;
  AxisPlan (*planAxis)(const WindowAxis &);
};
} // namespace

// In a filter [outputs, inputs, height, width].
static Direction findDirection(const ConvolutionShape &shape, bool isGradient) {
  int64_t taps = shape.windows.rows.window * shape.windows.columns.window;
  FilterSide inputs = {shape.inputs, taps},
             outputs = {shape.outputs, shape.inputs * taps};
  return isGradient ? Direction{outputs, inputs, planGradient}
                    : Direction{inputs, outputs, planForward};
}

std::optional<GemmShape> asMatrixProduct(const ConvolutionForm &form) {
  const ConvolutionShape &shape = form.shape;
  if (form.computes == ConvolutionSide::filter || !isMatrixProduct(shape))
    return std::nullopt;
  Direction direction =
      findDirection(shape, form.computes == ConvolutionSide::image);
  GemmShape gemm;
  gemm.m = shape.batch * shape.windows.rows.count * shape.windows.columns.count;
  gemm.n = direction.to.channels;
  gemm.k = direction.from.channels;
  gemm.aRowStride = gemm.k;
  gemm.aColumnStride = 1;
  gemm.bRowStride = direction.from.stride;
  gemm.bColumnStride = direction.to.stride;
  gemm.cRowStride = gemm.n;
  gemm.types = shape.types;
  return gemm;
}

static SlidingProduct getProduct(const ConvolutionShape &shape,
                                 bool isGradient) {
  const WindowAxis &rows = shape.windows.rows, &columns = shape.windows.columns;
  Direction direction = findDirection(shape, isGradient);
  return {shape.batch,
          direction.planAxis(rows),
          direction.planAxis(columns),
          direction.from.channels,
          direction.to.channels,
          direction.from.stride,
          direction.to.stride,
          columns.window,
          shape.outputs * shape.inputs * rows.window * columns.window,
          shape.types};
}

static StagePlan planSlidingStages(StringRef symbol,
                                   const ConvolutionShape &shape,
                                   bool isGradient, const CpuTarget &target,
                                   const ConvolutionTuning &tuning) {
  SlidingProduct product = getProduct(shape, isGradient);
  return listStages(symbol, product, planSliding(product, target, tuning));
}

static StagePlan emitSliding(ModuleOp module, StringRef symbol,
                             const ConvolutionShape &shape, bool isGradient,
                             const CpuTarget &target,
                             const ConvolutionTuning &tuning) {
  SlidingProduct product = getProduct(shape, isGradient);
  SlidingPlan plan = planSliding(product, target, tuning);
  SlidingWriter(module, symbol, product, plan, target).emit();
  return listStages(symbol, product, plan);
}

StagePlan planConvolution(StringRef symbol, const ConvolutionShape &shape,
                          const CpuTarget &target,
                          const ConvolutionTuning &tuning) {
  return planSlidingStages(symbol, shape, /*isGradient=*/false, target, tuning);
}

StagePlan planConvolutionGradInput(StringRef symbol,
                                   const ConvolutionShape &shape,
                                   const CpuTarget &target,
                                   const ConvolutionTuning &tuning) {
  return planSlidingStages(symbol, shape, /*isGradient=*/true, target, tuning);
}

StagePlan emitConvolution(ModuleOp module, StringRef symbol,
                          const ConvolutionShape &shape,
                          const CpuTarget &target,
                          const ConvolutionTuning &tuning) {
  return emitSliding(module, symbol, shape, /*isGradient=*/false, target,
                     tuning);
}

StagePlan emitConvolutionGradInput(ModuleOp module, StringRef symbol,
                                   const ConvolutionShape &shape,
                                   const CpuTarget &target,
                                   const ConvolutionTuning &tuning) {
  return emitSliding(module, symbol, shape, /*isGradient=*/true, target,
                     tuning);
}

} // namespace kiln::cpu
