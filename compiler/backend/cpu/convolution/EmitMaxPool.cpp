// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Channels are lanes, a few registers of them at once, so that comparisons do
// not wait for each other. Loops over a window run over the part of it that
// lies in the image. Windows overlap, so a gradient of 16 bits is added up in
// scratch and rounded when its image is done.
#include "compiler/backend/cpu/convolution/EmitConvolution.h"

#include "compiler/backend/cpu/MicroKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <limits>

using namespace mlir;

namespace kiln::cpu {

// Channels that are processed together.
static int64_t getGroup(const PoolShape &shape, const CpuTarget &target,
                        const PoolTuning &tuning) {
  int64_t lanes = target.lanes(shape.types.computedBytes());
  return std::min<int64_t>(tuning.registers * lanes,
                           llvm::alignTo(shape.channels, uint64_t(lanes)));
}

// Of each worker: the sums of an image's group of channels.
static int64_t countSums(const PoolShape &shape, int64_t group) {
  if (!shape.types.areResultsRounded())
    return 0;
  return llvm::alignTo(shape.windows.rows.size * shape.windows.columns.size *
                           group,
                       64 / shape.types.computedBytes());
}

namespace {

class PoolWriter {
public:
  PoolWriter(ModuleOp module, StringRef symbol, const PoolShape &shape,
             const CpuTarget &target, const PoolTuning &tuning)
      : module(module), symbol(symbol), shape(shape),
        builder(module.getContext()),
        write(builder, module.getLoc(), shape.types.computed(), target),
        group(getGroup(shape, target, tuning)) {}

  void emitForward();
  void emitGradient();

private:
  /// Taps of a window that see the image, and where the window begins.
  struct Taps {
    Value begin, end, start;
  };
  /// The sizes of registers that hold some channels.
  using Sizes = SmallVector<int64_t>;

  func::FuncOp enterStage(bool isGradient);
  Taps findTaps(const WindowAxis &axis, Value place);
  Value pixel(Value image, Value row, Value column, bool isResult);
  Value tapPlace(Value image, const Taps &rows, const Taps &columns, Value row,
                 Value column);
  void forGroups(function_ref<void(Value channel, const Sizes &)> body);
  Sizes sizes(int64_t channels);
  /// Runs over the taps of a window, carrying registers.
  SmallVector<Value>
  overTaps(const Taps &rows, const Taps &columns, ArrayRef<Value> initial,
           function_ref<SmallVector<Value>(Value, Value, ValueRange)> body);
  /// The gradient of the pixels of an image, for a group of channels: in the
  /// result or in scratch.
  struct Sums {
    Value buffer, base;
    int64_t pixelStride;
  };
  void forPixels(function_ref<void(Value pixel)> body);
  void clear(const Sums &sums, const Sizes &sizes);
  void scatter(func::FuncOp stage, Value image, Value channel, const Sums &sums,
               const Sizes &sizes);
  void emitGroup(func::FuncOp stage, Value image, Value channel,
                 const Sizes &sizes);

  ModuleOp module;
  StringRef symbol;
  const PoolShape &shape;
  OpBuilder builder;
  TileWriter write;
  int64_t group;
};

} // namespace

func::FuncOp PoolWriter::enterStage(bool isGradient) {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  int64_t images = shape.batch * y.size * x.size * shape.channels,
          results = shape.batch * y.count * x.count * shape.channels;
  Type operands = shape.types.operands;
  SmallVector<Type> types = {MemRefType::get(images, operands)};
  if (!isGradient)
    types.push_back(MemRefType::get(results, shape.types.results));
  else
    types.append({MemRefType::get(results, operands),
                  MemRefType::get(results, operands),
                  MemRefType::get(images, shape.types.results)});
  if (int64_t sums = countSums(shape, group); isGradient && sums != 0)
    types.push_back(
        MemRefType::get(sums * kMaxWorkers, shape.types.computed()));
  func::FuncOp stage = createStage(module, symbol, types);
  markVectorised(stage);
  builder.setInsertionPointToStart(&stage.front());
  write.enter(stage.front());
  return stage;
}

PoolWriter::Taps PoolWriter::findTaps(const WindowAxis &axis, Value place) {
  Value first = write.mul(place, axis.stride);
  Value padding = write.index(axis.padding);
  Value begin = write.sub(write.max(first, padding), first);
  Value end =
      write.min(write.index(axis.window),
                write.sub(write.index(axis.size + axis.padding), first));
  return {begin, end, write.sub(first, padding)};
}

Value PoolWriter::pixel(Value image, Value row, Value column, bool isResult) {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  Value line = write.add(write.mul(image, isResult ? y.count : y.size), row);
  Value number =
      write.add(write.mul(line, isResult ? x.count : x.size), column);
  return write.mul(number, shape.channels);
}

Value PoolWriter::tapPlace(Value image, const Taps &rows, const Taps &columns,
                           Value row, Value column) {
  return pixel(image, write.add(rows.start, row),
               write.add(columns.start, column), false);
}

PoolWriter::Sizes PoolWriter::sizes(int64_t channels) {
  Sizes result;
  for (int64_t first = 0; first < channels; first += write.lanes)
    result.push_back(std::min(write.lanes, channels - first));
  return result;
}

void PoolWriter::forGroups(function_ref<void(Value, const Sizes &)> body) {
  int64_t whole = shape.channels / group * group;
  write.loop(write.index(0), write.index(whole), group,
             [&](Value channel) { body(channel, sizes(group)); });
  if (whole != shape.channels)
    body(write.index(whole), sizes(shape.channels - whole));
}

SmallVector<Value> PoolWriter::overTaps(
    const Taps &rows, const Taps &columns, ArrayRef<Value> initial,
    function_ref<SmallVector<Value>(Value, Value, ValueRange)> body) {
  auto outer = scf::ForOp::create(
      builder, write.loc, rows.begin, rows.end, write.index(1), initial,
      [&](OpBuilder &, Location, Value row, ValueRange carried) {
        auto inner = scf::ForOp::create(
            builder, write.loc, columns.begin, columns.end, write.index(1),
            carried,
            [&](OpBuilder &, Location, Value column, ValueRange values) {
              scf::YieldOp::create(builder, write.loc,
                                   body(row, column, values));
            });
        scf::YieldOp::create(builder, write.loc, inner.getResults());
      });
  return SmallVector<Value>(outer.getResults());
}

void PoolWriter::emitForward() {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  func::FuncOp stage = enterStage(false);
  StageRange range = getRange(stage);
  Value lowest = arith::ConstantOp::create(
      builder, write.loc,
      DenseElementsAttr::get(
          write.vectorType(write.lanes),
          builder
              .getFloatAttr(shape.types.computed(),
                            -std::numeric_limits<double>::infinity())
              .getValue()));
  write.loop(range.begin, range.end, 1, [&](Value item) {
    Value image = write.div(item, y.count), row = write.rem(item, y.count);
    Taps rows = findTaps(y, row);
    write.loop(write.index(0), write.index(x.count), 1, [&](Value column) {
      Taps columns = findTaps(x, column);
      Value to = pixel(image, row, column, true);
      forGroups([&](Value channel, const Sizes &sizes) {
        SmallVector<Value> start(sizes.size(), lowest);
        auto greatest = overTaps(
            rows, columns, start,
            [&](Value tapRow, Value tapColumn, ValueRange values) {
              Value from = write.add(
                  tapPlace(image, rows, columns, tapRow, tapColumn), channel);
              SmallVector<Value> result;
              for (auto [i, size] : llvm::enumerate(sizes))
                result.push_back(arith::MaximumFOp::create(
                    builder, write.loc, values[i],
                    write.loadPadded(stage.getArgument(0),
                                     write.add(from, i * write.lanes), size)));
              return result;
            });
        for (auto [i, size] : llvm::enumerate(sizes))
          write.store(write.firstLanes(greatest[i], size), stage.getArgument(1),
                      write.add(write.add(to, channel), i * write.lanes));
      });
    });
  });
  func::ReturnOp::create(builder, write.loc);
}

void PoolWriter::forPixels(function_ref<void(Value)> body) {
  int64_t pixels = shape.windows.rows.size * shape.windows.columns.size;
  write.loop(write.index(0), write.index(pixels), 1, body);
}

void PoolWriter::clear(const Sums &sums, const Sizes &sizes) {
  forPixels([&](Value pixel) {
    Value place = write.add(sums.base, write.mul(pixel, sums.pixelStride));
    for (auto [i, size] : llvm::enumerate(sizes))
      write.store(write.zeros(size), sums.buffer,
                  write.add(place, i * write.lanes));
  });
}

// Only the first element that equals the maximum receives the gradient.
void PoolWriter::scatter(func::FuncOp stage, Value image, Value channel,
                         const Sums &sums, const Sizes &sizes) {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  Value from = stage.getArgument(0);
  write.loop(write.index(0), write.index(y.count), 1, [&](Value row) {
    Taps rows = findTaps(y, row);
    write.loop(write.index(0), write.index(x.count), 1, [&](Value column) {
      Taps columns = findTaps(x, column);
      Value place = write.add(pixel(image, row, column, true), channel);
      SmallVector<Value> greatest, grads;
      for (auto [i, size] : llvm::enumerate(sizes)) {
        Value element = write.add(place, i * write.lanes);
        greatest.push_back(write.load(stage.getArgument(1), element, size));
        grads.push_back(write.load(stage.getArgument(2), element, size));
      }
      overTaps(
          rows, columns, grads,
          [&](Value tapRow, Value tapColumn, ValueRange left) {
            Value seen = write.add(
                tapPlace(image, rows, columns, tapRow, tapColumn), channel);
            Value pixel =
                write.add(write.mul(write.add(rows.start, tapRow), x.size),
                          write.add(columns.start, tapColumn));
            Value to = write.add(sums.base, write.mul(pixel, sums.pixelStride));
            SmallVector<Value> rest;
            for (auto [i, size] : llvm::enumerate(sizes)) {
              Value element = write.add(seen, i * write.lanes);
              Value target = write.add(to, i * write.lanes);
              Value zero = write.zeros(size);
              Value isTaken = arith::CmpFOp::create(
                  builder, write.loc, arith::CmpFPredicate::OEQ,
                  write.load(from, element, size), greatest[i]);
              Value part = arith::SelectOp::create(builder, write.loc, isTaken,
                                                   left[i], zero);
              write.store(arith::AddFOp::create(
                              builder, write.loc,
                              write.load(sums.buffer, target, size), part),
                          sums.buffer, target);
              rest.push_back(arith::SelectOp::create(builder, write.loc,
                                                     isTaken, zero, left[i]));
            }
            return rest;
          });
    });
  });
}

void PoolWriter::emitGroup(func::FuncOp stage, Value image, Value channel,
                           const Sizes &sizes) {
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  Value result = stage.getArgument(3);
  Value first =
      write.add(write.mul(image, y.size * x.size * shape.channels), channel);
  Sums sums = {result, first, shape.channels};
  int64_t kept = countSums(shape, group);
  if (kept != 0)
    sums = {stage.getArgument(4), write.mul(getRange(stage).worker, kept),
            group};
  clear(sums, sizes);
  scatter(stage, image, channel, sums, sizes);
  if (kept == 0)
    return;
  forPixels([&](Value pixel) {
    Value from = write.add(sums.base, write.mul(pixel, sums.pixelStride));
    Value to = write.add(first, write.mul(pixel, shape.channels));
    for (auto [i, size] : llvm::enumerate(sizes))
      write.store(
          write.load(sums.buffer, write.add(from, i * write.lanes), size),
          result, write.add(to, i * write.lanes));
  });
}

void PoolWriter::emitGradient() {
  int64_t groups = llvm::divideCeil(shape.channels, group);
  func::FuncOp stage = enterStage(true);
  StageRange range = getRange(stage);
  write.loop(range.begin, range.end, 1, [&](Value item) {
    Value image = write.div(item, groups), number = write.rem(item, groups);
    auto emit = [&](int64_t channels) {
      emitGroup(stage, image, write.mul(number, group), sizes(channels));
    };
    int64_t tail = shape.channels % group;
    if (tail == 0)
      return emit(group);
    write.branch(
        write.isEqual(number, write.index(groups - 1)), [&] { emit(tail); },
        [&] { emit(group); });
  });
  func::ReturnOp::create(builder, write.loc);
}

// Items are rows of results forward, groups of channels in the gradient.
StagePlan planMaxPool(StringRef symbol, const PoolShape &shape,
                      const CpuTarget &, const PoolTuning &) {
  StagePlan stages;
  stages.stages = {{symbol.str(), shape.batch * shape.windows.rows.count}};
  return stages;
}

StagePlan planMaxPoolGradient(StringRef symbol, const PoolShape &shape,
                              const CpuTarget &target,
                              const PoolTuning &tuning) {
  int64_t group = getGroup(shape, target, tuning);
  StagePlan stages;
  stages.stages = {{symbol.str(), shape.batch * int64_t(llvm::divideCeil(
                                                    shape.channels, group))}};
  stages.scratchBytesPerWorker =
      countSums(shape, group) * shape.types.computedBytes();
  return stages;
}

StagePlan emitMaxPool(ModuleOp module, StringRef symbol, const PoolShape &shape,
                      const CpuTarget &target, const PoolTuning &tuning) {
  PoolWriter(module, symbol, shape, target, tuning).emitForward();
  return planMaxPool(symbol, shape, target, tuning);
}

StagePlan emitMaxPoolGradient(ModuleOp module, StringRef symbol,
                              const PoolShape &shape, const CpuTarget &target,
                              const PoolTuning &tuning) {
  PoolWriter(module, symbol, shape, target, tuning).emitGradient();
  return planMaxPoolGradient(symbol, shape, target, tuning);
}

} // namespace kiln::cpu
