// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/rows/EmitFused.h"
#include "compiler/backend/cpu/KernelBody.h"
#include "compiler/backend/cpu/rows/FusedEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace kiln::cpu {

void FusedEmitter::startStage() {
  current = &plan.stages[current ? current - plan.stages.begin() + 1 : 0];
  stage =
      createStage(module, symbol + current->suffix,
                  getBufferTypes(body, plan.scratchElements, plan.scratchType));
  builder.setInsertionPointToStart(&stage.front());
}

void FusedEmitter::forRange(Value begin, Value end, int64_t step,
                            function_ref<void(Value)> emitBody) {
  auto loop =
      scf::ForOp::create(builder, loc, begin, end, index().constant(step));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  emitBody(loop.getInductionVar());
}

static StagePlan listStages(StringRef symbol, const FusedPlan &plan) {
  StagePlan stages;
  for (const FusedPlan::Stage &stage : plan.stages)
    stages.stages.push_back({(symbol + stage.suffix).str(), stage.items});
  stages.sharedScratchBytes = plan.getScratchBytes();
  return stages;
}

void FusedEmitter::emit() {
  switch (plan.form) {
  case FusedPlan::Form::rows:
    emitRows();
    break;
  case FusedPlan::Form::flat:
    emitFlat();
    break;
  case FusedPlan::Form::chunks:
    emitChunks();
    emitFinish();
    break;
  case FusedPlan::Form::longRow:
    emitLongRow();
    break;
  }
}

void FusedEmitter::emitRows() {
  startStage();
  StageRange range = getRange(stage);
  forRange(range.begin, range.end, 1, [&](Value row) { emitRow(row); });
  func::ReturnOp::create(builder, loc);
}

void FusedEmitter::ifLastItem(function_ref<void()> emitBody) {
  StageRange range = getRange(stage);
  Value isLast =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, range.end,
                            index().constant(current->items));
  Value isBusy = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult,
                                       range.begin, range.end);
  isLast = arith::AndIOp::create(builder, loc, isLast, isBusy);
  auto ifLast =
      scf::IfOp::create(builder, loc, isLast, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(ifLast.thenBlock());
  emitBody();
}

// One long row is shared by blocks of columns.
void FusedEmitter::emitFlat() {
  startStage();
  StageRange range = getRange(stage);
  // The only row may still have indices, of dimensions of size 1.
  rowIndices.assign(domain.getSplit(), index().constant(0));
  prepareRow();
  // Row values first: they are the same for every column.
  for (Value value : access.getPasses()[0].rowValues)
    rowValue(value);
  Value begin = index().mul(range.begin, plan.flatBlock);
  Value end = index().min(index().mul(range.end, plan.flatBlock),
                          index().constant(wholeColumns()));
  if (wholeColumns() > 0)
    walkColumns(0, begin, end, {});
  ifLastItem([&] {
    walkTail(0, {});
    storeRowResults();
  });
  func::ReturnOp::create(builder, loc);
}

// One row with reductions: a stage for each pass, in which workers share chunks
// of columns. Each stage combines the partial results of those before it.
void FusedEmitter::emitLongRow() {
  for (unsigned pass = 0; pass < domain.getPassCount(); ++pass) {
    startStage();
    rowIndices.assign(domain.getSplit(), index().constant(0));
    prepareRow();
    for (unsigned known = 0; known <= pass; ++known) {
      if (known > 0)
        for (Operation *op : access.getPasses()[known - 1].reductions)
          rowKnown[op->getResult(0)] = combinePartials(
              op, index().constant(0), plan.chunks, index().constant(0));
      for (Value value : access.getPasses()[known].rowValues)
        rowValue(value);
    }
    if (access.getPasses()[pass].walksRow())
      emitLongPass(pass);
    if (pass + 1 == domain.getPassCount())
      ifLastItem([&] { storeRowResults(); });
    func::ReturnOp::create(builder, loc);
  }
}

void FusedEmitter::emitLongPass(unsigned pass) {
  StageRange range = getRange(stage);
  int64_t columns = domain.getColumnsPerChunk();
  forRange(range.begin, range.end, 1, [&](Value number) {
    Value begin = index().mul(number, columns);
    Value end = index().min(index().add(begin, index().constant(columns)),
                            index().constant(wholeColumns()));
    SmallVector<Value> totals =
        walkColumns(pass, begin, end, startReductions(pass));
    if (wholeColumns() < domain.getColumns()) {
      Value isLast =
          arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, number,
                                index().constant(plan.chunks - 1));
      auto choice = scf::IfOp::create(
          builder, loc, ValueRange(totals).getTypes(), isLast, true);
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(choice.thenBlock());
      SmallVector<Value> more = walkTail(pass, totals);
      if (!totals.empty()) {
        scf::YieldOp::create(builder, loc, more);
        builder.setInsertionPointToStart(choice.elseBlock());
        scf::YieldOp::create(builder, loc, totals);
      }
      totals.assign(choice.getResults().begin(), choice.getResults().end());
    }
    for (auto [op, total] :
         llvm::zip_equal(access.getPasses()[pass].reductions, totals))
      storeElement(builder, loc, reduceLanes(op, total), scratch(),
                   partialPlace(op, number));
  });
}

void FusedEmitter::emitChunks() {
  startStage();
  StageRange range = getRange(stage);
  int64_t rowsPerGroup = domain.getRows() / domain.getGroups();
  forRange(range.begin, range.end, 1, [&](Value number) {
    chunk = number;
    for (Operation *op : access.getOuter()) {
      int64_t size = domain.isPoint(op->getResult(0)) ? domain.getColumns() : 1;
      Reduction reduction = cast<Structured>(op).getReduction();
      Value neutral = arith::ConstantOp::create(
          builder, loc, getNeutral(builder, reduction, plan.scratchType));
      Value base = partialPlace(op, chunk);
      forRange(index().constant(0), index().constant(size), 1,
               [&](Value position) {
                 storeElement(builder, loc, neutral, scratch(),
                              index().add(base, position));
               });
    }
    Value first =
        index().mul(index().div(chunk, plan.chunksPerGroup), rowsPerGroup);
    Value begin =
        index().add(first, index().mul(index().rem(chunk, plan.chunksPerGroup),
                                       plan.rowsPerChunk));
    Value end =
        index().min(index().add(begin, index().constant(plan.rowsPerChunk)),
                    index().add(first, index().constant(rowsPerGroup)));
    forRange(begin, end, 1, [&](Value row) { emitRow(row); });
  });
  func::ReturnOp::create(builder, loc);
}

// Adds the partial sums of each group in the order of the chunks.
void FusedEmitter::emitFinish() {
  startStage();
  int64_t blocks = llvm::divideCeil(domain.getColumns(), plan.finishBlock);
  StageRange range = getRange(stage);
  forRange(range.begin, range.end, 1, [&](Value item) {
    Value group = index().div(item, blocks);
    Value column = index().mul(index().rem(item, blocks), plan.finishBlock);
    for (Operation *op : access.getOuter())
      finishReduction(op, group, column, plan.finishBlock);
  });
  func::ReturnOp::create(builder, loc);
}

void FusedEmitter::finishReduction(Operation *op, Value group, Value column,
                                   int64_t columns) {
  int64_t size = domain.isPoint(op->getResult(0)) ? domain.getColumns() : 1;
  Value first = index().mul(group, plan.chunksPerGroup);
  Value begin = index().min(column, index().constant(size));
  Value end = index().min(index().add(column, index().constant(columns)),
                          index().constant(size));
  forRange(begin, end, 1, [&](Value column) {
    storeElement(builder, loc,
                 combinePartials(op, first, plan.chunksPerGroup, column),
                 output(access.getOutput(op->getResult(0))),
                 index().add(index().mul(group, size), column));
  });
}

// Offset of a chunk's partial results.
Value FusedEmitter::partialPlace(Operation *op, Value number) {
  return index().add(
      index().constant(plan.partials.lookup(op)),
      index().mul(number, FusedPlan::getPartialStride(op, domain)));
}

// Combines `count` chunks from `first` on, in order.
Value FusedEmitter::combinePartials(Operation *op, Value first, int64_t count,
                                    Value column) {
  Reduction reduction = cast<Structured>(op).getReduction();
  Value neutral = arith::ConstantOp::create(
      builder, loc, getNeutral(builder, reduction, plan.scratchType));
  auto loop =
      scf::ForOp::create(builder, loc, index().constant(0),
                         index().constant(count), index().constant(1), neutral);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value number = index().add(first, loop.getInductionVar());
  Value part = loadElement(builder, loc, scratch(),
                           index().add(partialPlace(op, number), column),
                           plan.scratchType);
  scf::YieldOp::create(
      builder, loc,
      combine(builder, loc, reduction, loop.getRegionIterArgs()[0], part));
  return loop.getResult(0);
}

void FusedEmitter::emitRow(Value row) {
  rowIndices =
      index().delinearise(row, domain.getSizes().take_front(domain.getSplit()));
  prepareRow();
  for (unsigned pass = 0; pass < domain.getPassCount(); ++pass)
    emitPass(pass);
  storeRowResults();
  storeSharedResults();
}

// Whether the row is the first of those that compute equal elements of `value`.
Value FusedEmitter::isFirstRowOf(Value value) {
  Value isFirst = arith::ConstantOp::create(
      builder, loc, builder.getIntegerAttr(builder.getI1Type(), 1));
  for (unsigned dim = 0; dim < domain.getSplit(); ++dim)
    if (!llvm::is_contained(domain.getDims(value), dim)) {
      Value isZero =
          arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq,
                                rowIndices[dim], index().constant(0));
      isFirst = arith::AndIOp::create(builder, loc, isFirst, isZero);
    }
  return isFirst;
}

// In a loop of their own, which only the first of these rows runs: the loops of
// the passes stay fast.
void FusedEmitter::storeSharedResults() {
  for (unsigned position : access.getSharedStores()) {
    Value result = results[position];
    auto ifFirst = scf::IfOp::create(builder, loc, isFirstRowOf(result),
                                     /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(ifFirst.thenBlock());
    if (!domain.isPoint(result)) {
      storeElement(builder, loc, rowValue(result), output(position),
                   rowBase(result));
      continue;
    }
    auto store = [&](Value column, Value mask) {
      Points points(column, mask, domain.getPassCount() - 1);
      storePoints(pointValue(result, points), output(position),
                  index().add(rowBase(result), column), mask);
    };
    int64_t whole = wholeColumns(), columns = domain.getColumns();
    forRange(index().constant(0), index().constant(whole), width,
             [&](Value column) { store(column, Value()); });
    if (whole < columns)
      store(index().constant(whole), tailMask(columns - whole));
  }
}

// Row results are stored when the row is done; sums over rows of row values are
// taken then too.
void FusedEmitter::storeRowResults() {
  for (unsigned position : access.getRowStores())
    storeElement(builder, loc, rowValue(results[position]), output(position),
                 rowBase(results[position]));
  for (Operation *op : access.getRowSums())
    accumulateOuter(op, rowValue(op->getOperand(0)), nullptr);
}

void FusedEmitter::emitPass(unsigned number) {
  const RowAccess::Pass &pass = access.getPasses()[number];
  // Row values that this pass may use, before its loop.
  for (Value value : pass.rowValues)
    rowValue(value);
  if (!pass.walksRow())
    return;
  SmallVector<Value> totals = startReductions(number);
  if (wholeColumns() > 0)
    totals = walkColumns(number, index().constant(0),
                         index().constant(wholeColumns()), totals);
  totals = walkTail(number, totals);
  for (auto [op, accumulator] : llvm::zip_equal(pass.reductions, totals)) {
    Value total = reduceLanes(op, accumulator);
    if (domain.isOuterReduction(op))
      accumulateOuter(op, total, nullptr);
    else
      rowKnown[op->getResult(0)] = total;
  }
}

// One accumulator per reduction.
SmallVector<Value> FusedEmitter::startReductions(unsigned pass) {
  SmallVector<Value> accumulators;
  for (Operation *op : access.getPasses()[pass].reductions) {
    Type type = getElementTypeOrSelf(op->getOperand(0).getType());
    if (width > 1)
      type = VectorType::get({width}, type);
    Reduction reduction = cast<Structured>(op).getReduction();
    accumulators.push_back(arith::ConstantOp::create(
        builder, loc, getNeutral(builder, reduction, type)));
  }
  return accumulators;
}

SmallVector<Value> FusedEmitter::walkColumns(unsigned pass, Value begin,
                                             Value end,
                                             ArrayRef<Value> accumulators) {
  auto loop = scf::ForOp::create(builder, loc, begin, end,
                                 index().constant(width), accumulators);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Points points(loop.getInductionVar(), Value(), pass);
  SmallVector<Value> carried(loop.getRegionIterArgs());
  SmallVector<Value> next = emitPoints(points, carried);
  if (!accumulators.empty())
    scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(loop.getResults());
}

// The columns past the last whole vector.
SmallVector<Value> FusedEmitter::walkTail(unsigned pass,
                                          ArrayRef<Value> accumulators) {
  int64_t begin = wholeColumns();
  if (begin == domain.getColumns())
    return SmallVector<Value>(accumulators);
  Points points(index().constant(begin), tailMask(domain.getColumns() - begin),
                pass);
  return emitPoints(points, accumulators);
}

Value FusedEmitter::reduceLanes(Operation *op, Value accumulator) {
  if (width == 1)
    return accumulator;
  auto kind = cast<Structured>(op).getReduction() == Reduction::max
                  ? vector::CombiningKind::MAXIMUMF
                  : vector::CombiningKind::ADD;
  return vector::ReductionOp::create(builder, loc, kind, accumulator);
}

// All that one place of the row contributes in this pass. All loads of a place
// come before its stores, so that a result may overlap an operand.
SmallVector<Value> FusedEmitter::emitPoints(Points &points,
                                            ArrayRef<Value> accumulators) {
  const RowAccess::Pass &pass = access.getPasses()[points.pass];
  SmallVector<Value> next;
  for (auto [op, accumulator] :
       llvm::zip_equal(pass.reductions, accumulators)) {
    Value value = pointValue(op->getOperand(0), points);
    Reduction reduction = cast<Structured>(op).getReduction();
    if (points.mask) {
      Value neutral = arith::ConstantOp::create(
          builder, loc, getNeutral(builder, reduction, value.getType()));
      value =
          arith::SelectOp::create(builder, loc, points.mask, value, neutral);
    }
    next.push_back(combine(builder, loc, reduction, accumulator, value));
  }
  SmallVector<std::pair<unsigned, Value>> stores;
  for (unsigned position : pass.stores)
    stores.push_back({position, pointValue(results[position], points)});
  SmallVector<std::pair<Operation *, Value>> sums;
  for (Operation *op : pass.columnSums)
    sums.push_back({op, pointValue(op->getOperand(0), points)});
  for (auto [position, value] : stores)
    storePoints(value, output(position),
                index().add(rowBase(results[position]), points.column),
                points.mask);
  for (auto [op, value] : sums)
    accumulateOuter(op, value, &points);
  return next;
}

// Adds to the partial sum of the chunk, at the columns of `points` if it is a
// point value.
void FusedEmitter::accumulateOuter(Operation *op, Value value, Points *points) {
  Reduction reduction = cast<Structured>(op).getReduction();
  Value place = partialPlace(op, chunk);
  if (!points) {
    Value old = loadElement(builder, loc, scratch(), place, plan.scratchType);
    storeElement(builder, loc, combine(builder, loc, reduction, old, value),
                 scratch(), place);
    return;
  }
  place = index().add(place, points->column);
  Value old = loadPoints(scratch(), place, plan.scratchType, points->mask);
  storePoints(combine(builder, loc, reduction, old, value), scratch(), place,
              points->mask);
}

StagePlan planFused(StringRef symbol, Block &body, const KernelDomain &domain,
                    const CpuTarget &target, const FusedTuning &tuning) {
  RowAccess access(body, domain);
  return listStages(symbol, makePlan(body, domain, access, target, tuning));
}

StagePlan emitFused(ModuleOp module, StringRef symbol, Block &body,
                    const KernelDomain &domain, const CpuTarget &target,
                    const FusedTuning &tuning) {
  RowAccess access(body, domain);
  FusedPlan plan = makePlan(body, domain, access, target, tuning);
  FusedEmitter(module, symbol, body, domain, access, plan).emit();
  return listStages(symbol, plan);
}

} // namespace kiln::cpu
