// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/EmitGeneral.h"
#include "compiler/backend/cpu/KernelBody.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace kiln::cpu {

namespace {

/// Without a module it only lists the stages.
class GeneralEmitter {
public:
  GeneralEmitter(ModuleOp module, StringRef symbol, Block &body,
                 const GeneralTuning &tuning)
      : module(module), symbol(symbol.str()), body(body), tuning(tuning),
        builder(body.getParentOp()->getContext()),
        loc(UnknownLoc::get(builder.getContext())) {}

  LogicalResult emit(Operation *op);
  StagePlan stages;

private:
  void emitStructured(Structured op);
  void emitIota(IotaOp op);
  /// Stride and offset of the runs of a copy within a value.
  struct Run {
    Value value;
    int64_t stride, offset;
  };
  void copyRuns(StringRef name, int64_t count, int64_t size, Run from, Run to);
  void emitSlice(SliceOp op);
  void emitConcatenate(ConcatenateOp op);
  /// A row of a table or its shard, and whether it has the row.
  struct Row {
    Value number;   // 0 if it does not.
    Value isInside; // Null if all ids are inside.
  };
  Row findRow(Value ids, Value position, Value first, int64_t rows);
  void emitEmbedding(EmbeddingOp op);
  void emitEmbeddingGrad(EmbeddingGradOp op);
  void emitEmbeddingGradInScratch(EmbeddingGradOp op);
  void clearRows(EmbeddingGradOp op);
  void
  forColumns(EmbeddingGradOp op, Value first, Value last,
             function_ref<void(Value token, Value row, Value column)> visit);
  void addRows(EmbeddingGradOp op, Value first, Value last,
               function_ref<Value(Value row, Value column)> getPlace,
               Value sums);

  using EmitItem = function_ref<void(Value item)>;
  void addStage(StringRef name, int64_t items, EmitItem emitItem);
  void forRange(int64_t size, EmitItem emitBody);
  Value linearise(ArrayRef<Value> indices, ArrayRef<int64_t> sizes);
  Value buffer(Value value);
  Value load(Value value, Value position) {
    return loadElement(builder, loc, buffer(value), position,
                       getElementTypeOrSelf(value.getType()));
  }
  Value narrow(Value value, Type element) {
    return value.getType() == element
               ? value
               : arith::TruncFOp::create(builder, loc, element, value);
  }
  ArrayRef<int64_t> shape(Value value) {
    return cast<RankedTensorType>(value.getType()).getShape();
  }
  static int64_t tensorElements(Value value) {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  }
  IndexBuilder index() { return {builder, loc}; }

  ModuleOp module;
  std::string symbol;
  Block &body;
  const GeneralTuning &tuning;
  OpBuilder builder;
  Location loc;
  func::FuncOp stage;
  int64_t scratchElements = 0; // Of each worker, f32.
};

} // namespace

// Operands are arguments of the body; the result is its only output.
Value GeneralEmitter::buffer(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return stage.getArgument(argument.getArgNumber());
  return stage.getArgument(body.getNumArguments());
}

void GeneralEmitter::addStage(StringRef name, int64_t items,
                              EmitItem emitItem) {
  std::string stageSymbol = symbol + name.str();
  stages.stages.push_back({stageSymbol, items});
  if (!module)
    return;
  stage = createStage(module, stageSymbol,
                      getBufferTypes(body, scratchElements * kMaxWorkers,
                                     builder.getF32Type()));
  builder.setInsertionPointToStart(&stage.front());
  StageRange range = getRange(stage);
  auto loop = scf::ForOp::create(builder, loc, range.begin, range.end,
                                 index().constant(1));
  builder.setInsertionPointToStart(loop.getBody());
  emitItem(loop.getInductionVar());
  builder.setInsertionPointAfter(loop);
  func::ReturnOp::create(builder, loc);
}

void GeneralEmitter::forRange(int64_t size, EmitItem emitBody) {
  auto loop = scf::ForOp::create(builder, loc, index().constant(0),
                                 index().constant(size), index().constant(1));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  emitBody(loop.getInductionVar());
}

Value GeneralEmitter::linearise(ArrayRef<Value> indices,
                                ArrayRef<int64_t> sizes) {
  Value position = index().constant(0);
  for (auto [value, size] : llvm::zip_equal(indices, sizes))
    position = index().add(index().mul(position, size), value);
  return position;
}

// Each element of the result is an item; loops over the dimensions that it
// lacks combine the points.
void GeneralEmitter::emitStructured(Structured op) {
  SmallVector<AffineMap> maps = op.getLoopMaps();
  SmallVector<int64_t> sizes = getLoopSizes(op);
  Value result = op->getResult(0);
  auto type = cast<RankedTensorType>(result.getType());
  addStage("", type.getNumElements(), [&](Value item) {
    SmallVector<Value> loops(sizes.size());
    for (auto [position, value] :
         llvm::enumerate(index().delinearise(item, type.getShape())))
      loops[maps.back().getDimPosition(position)] = value;
    SmallVector<unsigned> reduced;
    for (unsigned dim = 0; dim < sizes.size(); ++dim)
      if (!loops[dim])
        reduced.push_back(dim);
    auto emitPoint = [&]() {
      SmallVector<Value> elements;
      for (auto [map, operand] : llvm::zip(maps, op->getOperands())) {
        SmallVector<Value> indices;
        for (unsigned position = 0; position < map.getNumResults(); ++position)
          indices.push_back(loops[map.getDimPosition(position)]);
        elements.push_back(load(operand, linearise(indices, shape(operand))));
      }
      return op.buildBody(builder, loc, elements);
    };
    if (reduced.empty()) {
      storeElement(builder, loc, emitPoint(), buffer(result), item);
      return;
    }
    Type accumulator = getAccumulatorType(type.getElementType());
    Value total = arith::ConstantOp::create(
        builder, loc, getNeutral(builder, op.getReduction(), accumulator));
    SmallVector<scf::ForOp> nest;
    for (unsigned dim : reduced) {
      nest.push_back(scf::ForOp::create(builder, loc, index().constant(0),
                                        index().constant(sizes[dim]),
                                        index().constant(1), total));
      loops[dim] = nest.back().getInductionVar();
      total = nest.back().getRegionIterArgs()[0];
      builder.setInsertionPointToStart(nest.back().getBody());
    }
    Value inner = combine(builder, loc, op.getReduction(), total, emitPoint());
    for (scf::ForOp loop : llvm::reverse(nest)) {
      scf::YieldOp::create(builder, loc, inner);
      builder.setInsertionPointAfter(loop);
      inner = loop.getResult(0);
    }
    storeElement(builder, loc, narrow(inner, type.getElementType()),
                 buffer(result), item);
  });
}

void GeneralEmitter::emitIota(IotaOp op) {
  addStage("", shape(op.getResult())[0], [&](Value item) {
    Type element = getElementTypeOrSelf(op.getType());
    storeElement(builder, loc,
                 arith::IndexCastOp::create(builder, loc, element, item),
                 buffer(op.getResult()), item);
  });
}

// Copies `count` runs of `size` elements that are contiguous in source and
// target.
void GeneralEmitter::copyRuns(StringRef name, int64_t count, int64_t size,
                              Run from, Run to) {
  constexpr int64_t kLanes = 16;
  int64_t block = llvm::alignTo(tuning.copyBlock, kLanes);
  int64_t blocks = llvm::divideCeil(size, block);
  addStage(name, count * blocks, [&](Value item) {
    Value run = index().div(item, blocks);
    Value begin = index().mul(index().rem(item, blocks), block);
    Value end = index().min(index().add(begin, index().constant(block)),
                            index().constant(size));
    auto place = [&](const Run &side, Value position) {
      return index().add(index().add(index().mul(run, side.stride), position),
                         index().constant(side.offset));
    };
    auto copy = [&](Value first, Value last, int64_t lanes) {
      auto loop = scf::ForOp::create(builder, loc, first, last,
                                     index().constant(lanes));
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(loop.getBody());
      Value source = place(from, loop.getInductionVar()),
            target = place(to, loop.getInductionVar());
      auto element =
          cast<MemRefType>(buffer(from.value).getType()).getElementType();
      if (lanes == 1) {
        Value value =
            memref::LoadOp::create(builder, loc, buffer(from.value), source);
        memref::StoreOp::create(builder, loc, value, buffer(to.value), target);
        return;
      }
      Value values = vector::LoadOp::create(builder, loc,
                                            VectorType::get({lanes}, element),
                                            buffer(from.value), source);
      vector::StoreOp::create(builder, loc, values, buffer(to.value), target);
    };
    // Blocks begin at a whole number of vectors.
    Value whole = index().mul(index().div(end, kLanes), kLanes);
    copy(begin, whole, kLanes);
    copy(whole, end, 1);
  });
}

// Elements from one step along `dimension` to the next.
static int64_t countInner(ArrayRef<int64_t> shape, int64_t dimension) {
  int64_t inner = 1;
  for (int64_t size : shape.drop_front(dimension + 1))
    inner *= size;
  return inner;
}

void GeneralEmitter::emitSlice(SliceOp op) {
  int64_t inner = countInner(shape(op.getOperand()), op.getDimension());
  int64_t size = shape(op.getResult())[op.getDimension()] * inner;
  int64_t stride = shape(op.getOperand())[op.getDimension()] * inner;
  copyRuns("", tensorElements(op.getResult()) / size, size,
           {op.getOperand(), stride, int64_t(op.getOffset()) * inner},
           {op.getResult(), size, 0});
}

void GeneralEmitter::emitConcatenate(ConcatenateOp op) {
  int64_t inner = countInner(shape(op.getResult()), op.getDimension());
  int64_t stride = shape(op.getResult())[op.getDimension()] * inner;
  int64_t offset = 0;
  for (auto [number, operand] : llvm::enumerate(op.getOperands())) {
    int64_t size = shape(operand)[op.getDimension()] * inner;
    copyRuns("_" + std::to_string(number), tensorElements(operand) / size, size,
             {operand, size, 0}, {op.getResult(), stride, offset});
    offset += size;
  }
}

GeneralEmitter::Row GeneralEmitter::findRow(Value ids, Value position,
                                            Value first, int64_t rows) {
  auto toIndex = [&](Value value) -> Value {
    return arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                      value);
  };
  Value id = toIndex(load(ids, position));
  if (!first)
    return {id, Value()};
  Value row = arith::SubIOp::create(builder, loc, id,
                                    toIndex(load(first, index().constant(0))));
  // Unsigned, a row before the first is a large number.
  Value isInside = arith::CmpIOp::create(
      builder, loc, arith::CmpIPredicate::ult, row, index().constant(rows));
  return {
      arith::SelectOp::create(builder, loc, isInside, row, index().constant(0)),
      isInside};
}

void GeneralEmitter::emitEmbedding(EmbeddingOp op) {
  int64_t rows = shape(op.getTable())[0], columns = shape(op.getTable())[1];
  Type element = getElementTypeOrSelf(op.getType());
  addStage("", cast<RankedTensorType>(op.getType()).getNumElements(),
           [&](Value item) {
             Row row = findRow(op.getIds(), index().div(item, columns),
                               op.getFirst(), rows);
             Value position = index().add(index().mul(row.number, columns),
                                          index().rem(item, columns));
             Value value = load(op.getTable(), position);
             if (row.isInside)
               value = arith::SelectOp::create(
                   builder, loc, row.isInside, value,
                   arith::ConstantOp::create(builder, loc,
                                             builder.getZeroAttr(element)));
             storeElement(builder, loc, value, buffer(op.getResult()), item);
           });
}

// Visits the columns [first, last) of the rows of all ids, in the order of the
// ids. A row outside of this shard has no columns.
void GeneralEmitter::forColumns(
    EmbeddingGradOp op, Value first, Value last,
    function_ref<void(Value token, Value row, Value column)> visit) {
  forRange(tensorElements(op.getIds()), [&](Value token) {
    Row row =
        findRow(op.getIds(), token, op.getFirst(), shape(op.getResult())[0]);
    Value end = row.isInside ? Value(arith::SelectOp::create(
                                   builder, loc, row.isInside, last, first))
                             : last;
    auto loop =
        scf::ForOp::create(builder, loc, first, end, index().constant(1));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    visit(token, row.number, loop.getInductionVar());
  });
}

// Gradients of a repeated id are added in a fixed order.
void GeneralEmitter::addRows(EmbeddingGradOp op, Value first, Value last,
                             function_ref<Value(Value, Value)> getPlace,
                             Value sums) {
  int64_t columns = shape(op.getResult())[1];
  Type accumulator = cast<MemRefType>(sums.getType()).getElementType();
  forColumns(op, first, last, [&](Value token, Value row, Value column) {
    Value place = getPlace(row, column);
    Value old = loadElement(builder, loc, sums, place, accumulator);
    Value grad =
        load(op.getGrad(), index().add(index().mul(token, columns), column));
    if (grad.getType() != accumulator)
      grad = arith::ExtFOp::create(builder, loc, accumulator, grad);
    storeElement(builder, loc, arith::AddFOp::create(builder, loc, old, grad),
                 sums, place);
  });
}

void GeneralEmitter::clearRows(EmbeddingGradOp op) {
  ArrayRef<int64_t> table = shape(op.getResult());
  Type element = getElementTypeOrSelf(op.getType());
  addStage("_clear", table[0], [&](Value row) {
    Value zero =
        arith::ConstantOp::create(builder, loc, builder.getZeroAttr(element));
    forRange(table[1], [&](Value column) {
      storeElement(builder, loc, zero, buffer(op.getResult()),
                   index().add(index().mul(row, table[1]), column));
    });
  });
}

// A worker owns columns.
void GeneralEmitter::emitEmbeddingGrad(EmbeddingGradOp op) {
  int64_t width = tuning.gradientColumns;
  ArrayRef<int64_t> table = shape(op.getResult());
  int64_t columns = table[1];
  Type element = getElementTypeOrSelf(op.getType());
  if (isNarrow(element))
    return emitEmbeddingGradInScratch(op);
  clearRows(op);
  addStage("_add", llvm::divideCeil(columns, width), [&](Value block) {
    Value first = index().mul(block, width);
    Value last = index().min(index().add(first, index().constant(width)),
                             index().constant(columns));
    addRows(
        op, first, last,
        [&](Value row, Value column) {
          return index().add(index().mul(row, columns), column);
        },
        buffer(op.getResult()));
  });
}

// A table of 16 bits cannot hold sums: a worker adds up its columns in scratch,
// which has room for all rows and is used for those that have an id, and rounds
// them once.
void GeneralEmitter::emitEmbeddingGradInScratch(EmbeddingGradOp op) {
  int64_t width = tuning.gradientColumns;
  ArrayRef<int64_t> table = shape(op.getResult());
  int64_t rows = table[0], columns = table[1];
  Type element = getElementTypeOrSelf(op.getType());
  scratchElements = llvm::alignTo(rows * width, 16);
  stages.scratchBytesPerWorker = scratchElements * sizeof(float);
  clearRows(op);
  addStage("_add", llvm::divideCeil(columns, width), [&](Value block) {
    Value first = index().mul(block, width);
    Value last = index().min(index().add(first, index().constant(width)),
                             index().constant(columns));
    Value sums = stage.getArgument(body.getNumArguments() + 1);
    Value base = index().mul(getRange(stage).worker, scratchElements);
    auto getPlace = [&](Value row, Value column) {
      Value offset = arith::SubIOp::create(builder, loc, column, first);
      return index().add(base, index().add(index().mul(row, width), offset));
    };
    Value zero = arith::ConstantOp::create(
        builder, loc, builder.getZeroAttr(builder.getF32Type()));
    forColumns(op, first, last, [&](Value, Value row, Value column) {
      storeElement(builder, loc, zero, sums, getPlace(row, column));
    });
    addRows(op, first, last, getPlace, sums);
    forColumns(op, first, last, [&](Value, Value row, Value column) {
      Value sum = loadElement(builder, loc, sums, getPlace(row, column),
                              builder.getF32Type());
      storeElement(builder, loc, narrow(sum, element), buffer(op.getResult()),
                   index().add(index().mul(row, columns), column));
    });
  });
}

LogicalResult GeneralEmitter::emit(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](IotaOp op) { return emitIota(op), success(); })
      .Case([&](SliceOp op) { return emitSlice(op), success(); })
      .Case([&](ConcatenateOp op) { return emitConcatenate(op), success(); })
      .Case([&](EmbeddingOp op) { return emitEmbedding(op), success(); })
      .Case(
          [&](EmbeddingGradOp op) { return emitEmbeddingGrad(op), success(); })
      .Case([&](Structured op) { return emitStructured(op), success(); })
      .Default([](Operation *op) {
        return op->emitOpError("has no code generator for the CPU");
      });
}

FailureOr<StagePlan> emitGeneral(ModuleOp module, StringRef symbol, Block &body,
                                 const GeneralTuning &tuning) {
  GeneralEmitter emitter(module, symbol, body, tuning);
  if (failed(emitter.emit(&body.front())))
    return failure();
  return std::move(emitter.stages);
}

FailureOr<StagePlan> planGeneral(StringRef symbol, Block &body,
                                 const GeneralTuning &tuning) {
  return emitGeneral(ModuleOp(), symbol, body, tuning);
}

} // namespace kiln::cpu
