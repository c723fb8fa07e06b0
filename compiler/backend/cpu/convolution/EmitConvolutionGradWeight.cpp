// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of a filter sums over all places of all images. A block of some
// images and rows is packed once: the gradient of the result for tiles of
// outputs, the image for panels of inputs. Pixels are ordered by row, column
// and image, and columns of the image by phase of the stride, so that the
// elements that a tap sees along a row are contiguous in both, whatever the
// stride; taps walk over the same packed block, and only over places that see
// the image.
//   for each item (a share of the blocks, of the outputs and of the inputs)
//     for each block: pack both
//       for each panel, for each tap, for each tile: add to the sum
// Shares of the blocks have sums of their own, which a second stage adds in
// order and writes in the filter's layout. With few inputs a panel would be
// mostly empty; then the taps of a filter row are columns as well.
#include "compiler/backend/cpu/convolution/EmitConvolution.h"

#include "compiler/backend/cpu/MicroKernel.h"
#include "compiler/backend/cpu/convolution/WeightGradientPlan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace kiln::cpu {

namespace {

class WeightWriter {
public:
  WeightWriter(ModuleOp module, StringRef symbol, const ConvolutionShape &shape,
               const WeightPlan &plan, const CpuTarget &target)
      : module(module), symbol(symbol.str()), shape(shape), plan(plan),
        builder(module.getContext()),
        write(builder, module.getLoc(), shape.types.computed(), target) {}

  void emit();

private:
  struct Block {
    Value image, row, endRow; ///< The first image; rows of the result.
    Value firstTile, endTile, firstPanel, endPanel;
  };

  /// The fields of a tap.
  using Tap = std::array<Value, kTapFieldCount>;

  void enterStage(const std::string &stageSymbol);
  Value entry(Value tap, TapField field);
  void emitProduct();
  /// Calls `body` for each image of a block, or `absent` past the last.
  void forImages(const Block &block, function_ref<void(Value, Value)> body,
                 function_ref<void(Value)> absent);
  void packGrad(const Block &block);
  void packGradPixel(const Block &block, Value from, Value to);
  void packImage(const Block &block);
  void packPhase(const Block &block, Value packedRow, Value row, int64_t phase);
  void packPixel(const Block &block, Value from, Value to);
  void packWindow(Value row, Value column, Value to);
  void multiply(const Block &block, Value share, Value isFirst);
  void multiplyTile(const Block &block, const Tap &tap, Value tile, Value panel,
                    Value sum, Value isFirst);
  void emitSum();
  void sumVector(Value output, Value panel, int64_t column,
                 function_ref<void(Value tap, Value sum)> store);
  Value scalarZero() {
    return arith::ConstantOp::create(
        builder, write.loc,
        cast<TypedAttr>(builder.getZeroAttr(shape.types.computed())));
  }
  int64_t tailColumns() const { return plan.columns % plan.width; }
  int64_t filterTaps() const {
    return shape.windows.rows.window * shape.windows.columns.window;
  }

  ModuleOp module;
  std::string symbol;
  const ConvolutionShape &shape;
  const WeightPlan &plan;
  OpBuilder builder;
  TileWriter write;
  Value image, grad, result, scratch, taps;
  Value gradBase, imageBase; ///< This worker's packed elements.
  StageRange range;
};

} // namespace

// The products, and the sum of the shares.
static StagePlan listStages(StringRef symbol, const ConvolutionShape &shape,
                            const WeightPlan &plan) {
  StagePlan stages;
  stages.stages = {
      {symbol.str(), plan.shares * plan.outputGroups * plan.columnGroups},
      {(symbol + "_sum").str(), shape.outputs}};
  int64_t bytes = shape.types.computedBytes();
  stages.sharedScratchBytes = plan.sharedSize * bytes;
  stages.scratchBytesPerWorker = plan.workerSize * bytes;
  return stages;
}

void WeightWriter::enterStage(const std::string &stageSymbol) {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  const ElementTypes &types = shape.types;
  SmallVector<Type> buffers = {
      MemRefType::get(shape.batch * y.size * x.size * shape.inputs,
                      types.operands),
      MemRefType::get(shape.batch * y.count * x.count * shape.outputs,
                      types.operands),
      MemRefType::get(shape.outputs * shape.inputs * filterTaps(),
                      types.results),
      MemRefType::get(plan.sharedSize + plan.workerSize * kMaxWorkers,
                      types.computed())};
  func::FuncOp stage = createStage(module, stageSymbol, buffers);
  markVectorised(stage);
  builder.setInsertionPointToStart(&stage.front());
  write.enter(stage.front());
  image = stage.getArgument(0);
  grad = stage.getArgument(1);
  result = stage.getArgument(2);
  scratch = stage.getArgument(3);
  range = getRange(stage);
  SmallVector<int64_t> values;
  for (const auto &fields : plan.taps)
    values.append(fields.begin(), fields.end());
  if (values.empty())
    values.push_back(0); // No window sees the image; a table needs an entry.
  taps = emitTable(write, module, stageSymbol + "_taps", values);
  gradBase =
      write.add(write.mul(range.worker, plan.workerSize), plan.sharedSize);
  imageBase = write.add(gradBase, plan.groupTiles * plan.tileStride);
}

Value WeightWriter::entry(Value tap, TapField field) {
  return readTable(write, taps,
                   write.add(write.mul(tap, kTapFieldCount), int64_t(field)));
}

void WeightWriter::emitProduct() {
  enterStage(symbol);
  int64_t blocks = plan.imageBlocks * plan.rowBlocks;
  write.loop(range.begin, range.end, 1, [&](Value item) {
    Value share = write.rem(item, plan.shares);
    Value group = write.div(item, plan.shares);
    Block block;
    block.firstTile =
        write.mul(write.rem(group, plan.outputGroups), plan.groupTiles);
    block.endTile = write.min(write.add(block.firstTile, plan.groupTiles),
                              write.index(plan.tiles));
    block.firstPanel =
        write.mul(write.div(group, plan.outputGroups), plan.groupPanels);
    block.endPanel = write.min(write.add(block.firstPanel, plan.groupPanels),
                               write.index(plan.panels));
    Value first = write.mul(share, plan.blocksPerShare);
    Value end =
        write.min(write.add(first, plan.blocksPerShare), write.index(blocks));
    write.loop(first, end, 1, [&](Value number) {
      block.image = write.mul(write.div(number, plan.rowBlocks), plan.images);
      block.row = write.mul(write.rem(number, plan.rowBlocks), plan.rows);
      block.endRow = write.min(write.add(block.row, plan.rows),
                               write.index(shape.windows.rows.count));
      packGrad(block);
      packImage(block);
      multiply(block, share, write.isEqual(number, first));
    });
  });
  func::ReturnOp::create(builder, write.loc);
}

void WeightWriter::forImages(const Block &block,
                             function_ref<void(Value, Value)> body,
                             function_ref<void(Value)> absent) {
  write.loop(write.index(0), write.index(plan.images), 1, [&](Value number) {
    Value image = write.add(block.image, number);
    if (shape.batch % plan.images == 0)
      return body(number, image);
    write.branch(
        write.isBelow(image, write.index(shape.batch)),
        [&] { body(number, image); }, [&] { absent(number); });
  });
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

void WeightWriter::packGrad(const Block &block) {
  int64_t height = shape.windows.rows.count,
          width = shape.windows.columns.count;
  write.loop(block.row, block.endRow, 1, [&](Value row) {
    write.loop(write.index(0), write.index(width), 1, [&](Value column) {
      Value place =
          write.add(write.mul(write.sub(row, block.row), width), column);
      auto to = [&](Value number) {
        Value pixel = write.add(write.mul(place, plan.images), number);
        return write.add(gradBase, write.mul(pixel, plan.tileRows));
      };
      forImages(
          block,
          [&](Value number, Value image) {
            Value line = write.add(write.mul(image, height), row);
            Value pixel = write.add(write.mul(line, width), column);
            packGradPixel(block, write.mul(pixel, shape.outputs), to(number));
          },
          [&](Value number) {
            write.loop(block.firstTile, block.endTile, 1, [&](Value tile) {
              Value offset =
                  write.mul(write.sub(tile, block.firstTile), plan.tileStride);
              write.store(write.zeros(plan.tileRows), scratch,
                          write.add(to(number), offset));
            });
          });
    });
  });
}

// A register is wider than a row of the tile: the surplus is overwritten by the
// next pixel, or falls into the gap behind the tile. The last tiles have no
// room for such reads.
void WeightWriter::packGradPixel(const Block &block, Value from, Value to) {
  int64_t rows = plan.tileRows, wide = llvm::PowerOf2Ceil(rows);
  int64_t wideTiles =
      shape.outputs < wide ? 0 : (shape.outputs - wide) / rows + 1;
  auto place = [&](Value tile) {
    return write.add(
        to, write.mul(write.sub(tile, block.firstTile), plan.tileStride));
  };
  Value wideEnd = write.max(block.firstTile,
                            write.min(block.endTile, write.index(wideTiles)));
  write.loop(block.firstTile, wideEnd, 1, [&](Value tile) {
    write.store(write.load(grad, write.add(from, write.mul(tile, rows)), wide),
                scratch, place(tile));
  });
  for (int64_t number = wideTiles; number < plan.tiles; ++number) {
    Value tile = write.index(number);
    int64_t size = std::min(rows, shape.outputs - number * rows);
    Value isMine = arith::AndIOp::create(
        builder, write.loc, write.isBelow(tile, block.endTile),
        arith::CmpIOp::create(builder, write.loc, arith::CmpIPredicate::uge,
                              tile, block.firstTile));
    write.branch(isMine, [&] {
      Value value = write.load(grad, write.add(from, number * rows), size);
      SmallVector<int64_t> order(rows, size); // Zeros past the last output.
      for (int64_t lane = 0; lane < size; ++lane)
        order[lane] = lane;
      if (size != rows)
        value = vector::ShuffleOp::create(builder, write.loc, value,
                                          write.zeros(size), order);
      write.store(value, scratch, place(tile));
    });
  }
}

void WeightWriter::packImage(const Block &block) {
  const WindowAxis &y = shape.windows.rows;
  Value rows = write.sub(block.endRow, block.row);
  Value end =
      write.add(write.mul(write.sub(rows, write.index(1)), y.stride), y.window);
  write.loop(write.index(0), end, 1, [&](Value packedRow) {
    // Above the image this wraps around and is not below its size.
    Value row = write.sub(write.add(write.mul(block.row, y.stride), packedRow),
                          write.index(y.padding));
    Value isSeen = write.isBelow(row, write.index(y.size));
    if (y.stride > y.window)
      isSeen = arith::AndIOp::create(
          builder, write.loc, isSeen,
          write.isBelow(write.rem(packedRow, y.stride), write.index(y.window)));
    write.branch(isSeen, [&] {
      for (int64_t phase = 0; phase < plan.phases; ++phase)
        packPhase(block, packedRow, row, phase);
    });
  });
}

void WeightWriter::packPhase(const Block &block, Value packedRow, Value row,
                             int64_t phase) {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  int64_t first = 0, end = x.count;
  if (!plan.folds) {
    first = llvm::divideCeil(std::max<int64_t>(0, x.padding - phase), x.stride);
    end = (x.size - 1 + x.padding - phase) / x.stride + 1;
  }
  Value line = write.mul(write.add(write.mul(packedRow, plan.phases), phase),
                         plan.packedColumns);
  write.loop(write.index(first), write.index(end), 1, [&](Value column) {
    auto to = [&](Value number) {
      Value pixel =
          write.add(write.mul(write.add(line, column), plan.images), number);
      return write.add(imageBase, write.mul(pixel, plan.width));
    };
    forImages(
        block,
        [&](Value number, Value image) {
          Value source = write.add(write.mul(image, y.size), row);
          source = write.mul(source, x.size);
          if (plan.folds)
            return packWindow(source, column, to(number));
          Value pixel = write.sub(write.add(write.mul(column, x.stride), phase),
                                  write.index(x.padding));
          packPixel(block, write.mul(write.add(source, pixel), shape.inputs),
                    to(number));
        },
        [&](Value number) {
          write.loop(block.firstPanel, block.endPanel, 1, [&](Value panel) {
            Value offset =
                write.mul(write.sub(panel, block.firstPanel), plan.panelStride);
            for (int64_t j = 0; j < plan.width; j += write.lanes)
              write.store(write.zeros(write.lanes), scratch,
                          write.add(write.add(to(number), offset), j));
          });
        });
  });
}

void WeightWriter::packPixel(const Block &block, Value from, Value to) {
  auto copy = [&](Value panel, int64_t columns) {
    Value source = write.add(from, write.mul(panel, plan.width));
    Value target = write.add(
        to, write.mul(write.sub(panel, block.firstPanel), plan.panelStride));
    for (int64_t j = 0; j < columns; j += write.lanes)
      write.store(write.loadPadded(image, write.add(source, j),
                                   std::min(write.lanes, columns - j)),
                  scratch, write.add(target, j));
  };
  int64_t wholePanels = plan.columns / plan.width;
  Value wholeEnd = write.min(block.endPanel, write.index(wholePanels));
  write.loop(block.firstPanel, wholeEnd, 1,
             [&](Value panel) { copy(panel, plan.width); });
  if (tailColumns() != 0)
    write.branch(write.isBelow(wholeEnd, block.endPanel),
                 [&] { copy(wholeEnd, tailColumns()); });
}

// The elements of one window row, zero outside of the image.
void WeightWriter::packWindow(Value row, Value column, Value to) {
  const WindowAxis &x = shape.windows.columns;
  Value start = write.sub(write.mul(column, x.stride), write.index(x.padding));
  start = write.mul(start, shape.inputs);
  Value line = write.mul(row, shape.inputs);
  int64_t size = x.size * shape.inputs;
  auto place = [&](int64_t number) {
    return write.add(to, number / plan.width * plan.panelStride +
                             number % plan.width);
  };
  auto copy = [&] {
    Value from = write.add(line, start);
    for (int64_t j = 0; j < plan.panels * plan.width; j += write.lanes) {
      int64_t count = std::min(write.lanes, plan.columns - j);
      write.store(count > 0 ? write.loadPadded(image, write.add(from, j), count)
                            : write.zeros(write.lanes),
                  scratch, place(j));
    }
  };
  auto select = [&] {
    Value zero = scalarZero();
    for (int64_t number = 0; number < plan.panels * plan.width; ++number) {
      Value value = zero;
      if (number < plan.columns) {
        Value offset = write.add(start, number);
        Value isSeen = write.isBelow(offset, write.index(size));
        offset = arith::SelectOp::create(builder, write.loc, isSeen, offset,
                                         write.index(0));
        value = arith::SelectOp::create(
            builder, write.loc, isSeen,
            write.loadScalar(image, write.add(line, offset)), zero);
      }
      write.store(value, scratch, place(number));
    }
  };
  if (plan.columns > size)
    return select();
  write.branch(write.isBelow(start, write.index(size - plan.columns + 1)), copy,
               select);
}

//===----------------------------------------------------------------------===//
// Products and their sums
//===----------------------------------------------------------------------===//

void WeightWriter::multiply(const Block &block, Value share, Value isFirst) {
  int64_t tapCount = plan.taps.size();
  int64_t outputs = plan.tiles * plan.tileRows;
  write.loop(block.firstPanel, block.endPanel, 1, [&](Value panel) {
    write.loop(write.index(0), write.index(tapCount), 1, [&](Value tap) {
      Tap fields;
      for (int64_t field = 0; field < kTapFieldCount; ++field)
        fields[field] = entry(tap, TapField(field));
      Value number = write.add(write.mul(share, tapCount), tap);
      number = write.add(write.mul(number, plan.panels), panel);
      Value sum = write.mul(number, outputs * plan.width);
      write.loop(block.firstTile, block.endTile, 1, [&](Value tile) {
        multiplyTile(
            block, fields, tile, panel,
            write.add(sum, write.mul(tile, plan.tileRows * plan.width)),
            isFirst);
      });
    });
  });
}

void WeightWriter::multiplyTile(const Block &block, const Tap &tap, Value tile,
                                Value panel, Value sum, Value isFirst) {
  int64_t stride = shape.windows.rows.stride;
  int64_t width = shape.windows.columns.count;
  Value gradTile = write.add(
      gradBase, write.mul(write.sub(tile, block.firstTile), plan.tileStride));
  Value imagePanel =
      write.add(imageBase, write.mul(write.sub(panel, block.firstPanel),
                                     plan.panelStride));
  Value first = write.max(block.row, tap[kFirstRow]);
  Value end = write.min(block.endRow, tap[kEndRow]);
  Value tapRow = tap[kTapRow];
  Value gradColumn = tap[kGradColumn];
  Value imageColumn = tap[kImageColumn];
  Value depth = write.mul(tap[kColumns], plan.images);
  SmallVector<Value> zeros(plan.tileRows * plan.vectors,
                           write.zeros(write.lanes));
  auto loop = scf::ForOp::create(
      builder, write.loc, first, end, write.index(1), zeros,
      [&](OpBuilder &, Location, Value row, ValueRange carried) {
        Value local = write.sub(row, block.row);
        Value from = write.add(write.mul(local, width), gradColumn);
        Value line = write.add(write.mul(local, stride), tapRow);
        Value over = write.add(
            write.mul(line, plan.phases * plan.packedColumns), imageColumn);
        ScalarOperand left = {
            scratch,
            write.add(gradTile, write.mul(from, plan.images * plan.tileRows)),
            1, plan.tileRows};
        VectorOperand right = {
            scratch,
            write.add(imagePanel, write.mul(over, plan.images * plan.width)),
            plan.width};
        SmallVector<Value> sums(carried);
        scf::YieldOp::create(builder, write.loc,
                             emitTileProduct(write, plan.tileRows, plan.vectors,
                                             left, right, depth, plan.images,
                                             sums));
      });
  auto place = [&](int64_t number) {
    return write.add(sum, number * write.lanes);
  };
  write.branch(
      isFirst,
      [&] {
        for (auto [number, value] : llvm::enumerate(loop.getResults()))
          write.store(value, scratch, place(number));
      },
      [&] {
        for (auto [number, value] : llvm::enumerate(loop.getResults()))
          write.store(arith::AddFOp::create(
                          builder, write.loc,
                          write.load(scratch, place(number), write.lanes),
                          value),
                      scratch, place(number));
      });
}

// Adds the shares, in order, and scatters the elements to the filter. Taps that
// see only padding have no sums.
void WeightWriter::emitSum() {
  enterStage(symbol + "_sum");
  int64_t rowSize = shape.inputs * filterTaps();
  const WindowAxis &y = shape.windows.rows;
  bool isWhole =
      int64_t(plan.taps.size()) == (plan.folds ? y.window : filterTaps());
  write.loop(range.begin, range.end, 1, [&](Value output) {
    Value row = write.mul(output, rowSize);
    if (!isWhole) {
      int64_t whole = rowSize / write.lanes * write.lanes;
      write.loop(write.index(0), write.index(whole), write.lanes,
                 [&](Value place) {
                   write.store(write.zeros(write.lanes), result,
                               write.add(row, place));
                 });
      for (int64_t place = whole; place < rowSize; ++place)
        write.store(scalarZero(), result, write.add(row, place));
    }
    auto deal = [&](Value panel, int64_t column, int64_t columns) {
      sumVector(output, panel, column, [&](Value tap, Value sum) {
        Value to = write.add(row, entry(tap, kOffset));
        Value first = write.add(write.mul(panel, plan.width), column);
        if (!plan.folds && filterTaps() == 1)
          return write.store(write.firstLanes(sum, columns), result,
                             write.add(to, first));
        for (int64_t lane = 0; lane < columns; ++lane) {
          Value number = write.add(first, lane);
          Value offset = write.mul(number, filterTaps());
          if (plan.folds)
            offset = write.add(
                write.mul(write.rem(number, shape.inputs), filterTaps()),
                write.div(number, shape.inputs));
          write.store(vector::ExtractOp::create(builder, write.loc, sum, lane),
                      result, write.add(to, offset));
        }
      });
    };
    auto dealPanel = [&](Value panel, int64_t columns) {
      for (int64_t j = 0; j < columns; j += write.lanes)
        deal(panel, j, std::min(write.lanes, columns - j));
    };
    int64_t wholePanels = plan.columns / plan.width;
    write.loop(write.index(0), write.index(wholePanels), 1,
               [&](Value panel) { dealPanel(panel, plan.width); });
    if (tailColumns() != 0)
      dealPanel(write.index(wholePanels), tailColumns());
  });
  func::ReturnOp::create(builder, write.loc);
}

void WeightWriter::sumVector(Value output, Value panel, int64_t column,
                             function_ref<void(Value, Value)> store) {
  int64_t tapCount = plan.taps.size();
  int64_t outputs = plan.tiles * plan.tileRows;
  write.loop(write.index(0), write.index(tapCount), 1, [&](Value tap) {
    Value line =
        write.mul(write.add(write.mul(tap, plan.panels), panel), outputs);
    Value place =
        write.add(write.mul(write.add(line, output), plan.width), column);
    Value first = write.load(scratch, place, write.lanes);
    Value sum = write.fold(
        write.index(1), write.index(plan.shares), 1, first,
        [&](Value share, Value previous) -> Value {
          Value more = write.load(
              scratch, write.add(place, write.mul(share, plan.sumSize)),
              write.lanes);
          return arith::AddFOp::create(builder, write.loc, previous, more);
        });
    store(tap, sum);
  });
}

void WeightWriter::emit() {
  emitProduct();
  emitSum();
}

StagePlan planConvolutionGradWeight(StringRef symbol,
                                    const ConvolutionShape &shape,
                                    const CpuTarget &target,
                                    const FilterGradientTuning &tuning) {
  return listStages(symbol, shape, planWeightGradient(shape, target, tuning));
}

StagePlan emitConvolutionGradWeight(ModuleOp module, StringRef symbol,
                                    const ConvolutionShape &shape,
                                    const CpuTarget &target,
                                    const FilterGradientTuning &tuning) {
  WeightPlan plan = planWeightGradient(shape, target, tuning);
  WeightWriter(module, symbol, shape, plan, target).emit();
  return listStages(symbol, shape, plan);
}

} // namespace kiln::cpu
