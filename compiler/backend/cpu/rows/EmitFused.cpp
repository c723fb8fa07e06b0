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

FusedEmitter::FusedEmitter(ModuleOp module, StringRef symbol, Block &body,
                           const KernelDomain &domain, const CpuTarget &target)
    : module(module), symbol(symbol.str()), body(body), domain(domain),
      builder(module.getContext()), loc(module.getLoc()),
      results(body.getTerminator()->getOperands()) {
  for (auto [position, result] : llvm::enumerate(results))
    resultOf.try_emplace(result, position);
  for (Operation &op : body.without_terminator())
    if (domain.isOuterReduction(&op))
      outer.push_back(&op);
  constexpr int64_t kChunks =
      16; // Fixed, so that sums do not depend on the workers.
  rowsPerChunk = outer.empty()
                     ? 1
                     : llvm::divideCeil(domain.getRows(),
                                        std::max(kChunks, domain.getGroups()));
  for (Operation *op : outer) {
    scratchType = getElementTypeOrSelf(op->getResult(0).getType());
    partials[op] = scratchElements;
    int64_t size = domain.isPoint(op->getResult(0)) ? domain.getColumns() : 1;
    scratchElements += llvm::alignTo(size, 16) * getChunks();
  }
  chooseWidth(target);
}

// Several registers per value hide the latency of short bodies; long ones would
// spill. Where sums run along rows the width is their order, which may not
// depend on what else is fused: recomputation gives the same numbers in other
// kernels.
void FusedEmitter::chooseWidth(const CpuTarget &target) {
  constexpr unsigned kShortBody = 10;
  int64_t widest = 1;
  unsigned work = 0;
  bool hasSum = false;
  for (Operation &op : body.without_terminator()) {
    Value result = op.getResult(0);
    auto structured = dyn_cast<Structured>(op);
    hasSum |= !domain.isPoint(result) && structured &&
              structured.getReduction() == Reduction::sum;
    widest = std::max<int64_t>(
        widest,
        getElementTypeOrSelf(result.getType()).getIntOrFloatBitWidth() / 8);
    work += domain.isPoint(result) && op.getNumOperands() > 0;
  }
  int64_t lanes = target.lanes(std::max<int64_t>(widest, 4));
  width = lanes * (work <= kShortBody && !hasSum ? 4 : 2);
  while (width > lanes && width > domain.getColumns())
    width /= 2;
  if (domain.getColumns() == 1)
    width = 1;
}

func::FuncOp FusedEmitter::startStage(StringRef name, int64_t items) {
  std::string stageSymbol = symbol + name.str();
  stage = createStage(module, stageSymbol,
                      getBufferTypes(body, scratchElements, scratchType));
  code.stages.push_back({stageSymbol, items});
  builder.setInsertionPointToStart(&stage.front());
  return stage;
}

void FusedEmitter::forRange(Value begin, Value end, int64_t step,
                            function_ref<void(Value)> emitBody) {
  auto loop =
      scf::ForOp::create(builder, loc, begin, end, index().constant(step));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  emitBody(loop.getInductionVar());
}

StagePlan FusedEmitter::emit() {
  if (isFlat())
    emitFlat();
  else if (outer.empty())
    emitRows();
  else
    emitChunks();
  if (scratchElements)
    code.sharedScratchBytes = llvm::alignTo(
        scratchElements * scratchType.getIntOrFloatBitWidth() / 8, 64);
  return std::move(code);
}

void FusedEmitter::emitRows() {
  startStage("", domain.getRows());
  StageRange range = getRange(stage);
  forRange(range.begin, range.end, 1, [&](Value row) { emitRow(row); });
  func::ReturnOp::create(builder, loc);
}

// One long row is shared by blocks of columns.
void FusedEmitter::emitFlat() {
  constexpr int64_t kBlock = 4096;
  int64_t columns = domain.getColumns();
  int64_t block = llvm::alignTo(std::min(kBlock, columns), width);
  int64_t main = columns / width * width;
  startStage("", llvm::divideCeil(columns, block));
  StageRange range = getRange(stage);
  // The only row may still be numbered, by dimensions of size 1.
  rowIndices.assign(domain.getSplit(), index().constant(0));
  passReductions.clear();
  prepareRow();
  Value begin = index().mul(range.begin, block);
  Value end =
      index().min(index().mul(range.end, block), index().constant(main));
  // Row values first: they are the same for every column.
  for (Operation &op : body.without_terminator())
    if (!domain.isPoint(op.getResult(0)))
      rowValue(op.getResult(0));
  if (main > 0)
    forRange(begin, end, width, [&](Value column) {
      Points points(column, Value(), 0);
      emitPoints(points, {});
    });
  Value isLast =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, range.end,
                            index().constant(code.stages.back().items));
  Value isBusy = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult,
                                       range.begin, range.end);
  isLast = arith::AndIOp::create(builder, loc, isLast, isBusy);
  auto ifLast =
      scf::IfOp::create(builder, loc, isLast, /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(ifLast.thenBlock());
    if (main < columns) {
      Points points(index().constant(main), tailMask(columns - main), 0);
      emitPoints(points, {});
    }
    storeRowResults();
  }
  func::ReturnOp::create(builder, loc);
}

void FusedEmitter::emitChunks() {
  startStage("_chunks", getChunks());
  StageRange range = getRange(stage);
  forRange(range.begin, range.end, 1, [&](Value number) {
    chunk = number;
    for (Operation *op : outer) {
      int64_t size = domain.isPoint(op->getResult(0)) ? domain.getColumns() : 1;
      Reduction reduction = cast<Structured>(op).getReduction();
      Value neutral = arith::ConstantOp::create(
          builder, loc, getNeutral(builder, reduction, scratchType));
      Value base = index().add(index().constant(partials[op]),
                               index().mul(chunk, llvm::alignTo(size, 16)));
      forRange(index().constant(0), index().constant(size), 1,
               [&](Value position) {
                 storeElement(builder, loc, neutral, scratch(),
                              index().add(base, position));
               });
    }
    Value first =
        index().mul(index().div(chunk, chunksPerGroup()), rowsPerGroup());
    Value begin = index().add(
        first, index().mul(index().rem(chunk, chunksPerGroup()), rowsPerChunk));
    Value end =
        index().min(index().add(begin, index().constant(rowsPerChunk)),
                    index().add(first, index().constant(rowsPerGroup())));
    forRange(begin, end, 1, [&](Value row) { emitRow(row); });
  });
  func::ReturnOp::create(builder, loc);
  emitFinish();
}

// Adds the partial sums of each group in the order of the chunks.
void FusedEmitter::emitFinish() {
  constexpr int64_t kBlock = 64;
  int64_t blocks = llvm::divideCeil(domain.getColumns(), kBlock);
  startStage("_finish", domain.getGroups() * blocks);
  StageRange range = getRange(stage);
  forRange(range.begin, range.end, 1, [&](Value item) {
    Value group = index().div(item, blocks);
    Value column = index().mul(index().rem(item, blocks), kBlock);
    for (Operation *op : outer)
      finishReduction(op, group, column, kBlock);
  });
  func::ReturnOp::create(builder, loc);
}

void FusedEmitter::finishReduction(Operation *op, Value group, Value column,
                                   int64_t columns) {
  Reduction reduction = cast<Structured>(op).getReduction();
  int64_t size = domain.isPoint(op->getResult(0)) ? domain.getColumns() : 1;
  int64_t stride = llvm::alignTo(size, 16);
  Value first = index().mul(group, chunksPerGroup());
  Value begin = index().min(column, index().constant(size));
  Value end = index().min(index().add(column, index().constant(columns)),
                          index().constant(size));
  forRange(begin, end, 1, [&](Value column) {
    Value neutral = arith::ConstantOp::create(
        builder, loc, getNeutral(builder, reduction, scratchType));
    auto loop = scf::ForOp::create(builder, loc, index().constant(0),
                                   index().constant(chunksPerGroup()),
                                   index().constant(1), neutral);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(loop.getBody());
      Value number = index().add(first, loop.getInductionVar());
      Value place =
          index().add(index().constant(partials[op]),
                      index().add(index().mul(number, stride), column));
      Value part = loadElement(builder, loc, scratch(), place, scratchType);
      scf::YieldOp::create(
          builder, loc,
          combine(builder, loc, reduction, loop.getRegionIterArgs()[0], part));
    }
    storeElement(builder, loc, loop.getResult(0),
                 output(resultOf[op->getResult(0)]),
                 index().add(index().mul(group, size), column));
  });
}

void FusedEmitter::emitRow(Value row) {
  rowIndices =
      index().delinearise(row, domain.getSizes().take_front(domain.getSplit()));
  prepareRow();
  for (unsigned pass = 0; pass < domain.getPassCount(); ++pass)
    emitPass(pass);
  storeRowResults();
}

// Row results are stored when the row is done; sums over rows of row values are
// taken then too.
void FusedEmitter::storeRowResults() {
  for (auto [position, result] : llvm::enumerate(results)) {
    Operation *op = result.getDefiningOp();
    if (domain.isPoint(result) || (op && domain.isOuterReduction(op)))
      continue;
    storeElement(builder, loc, rowValue(result), output(position),
                 rowBase(result));
  }
  for (Operation *op : outer)
    if (!domain.isPoint(op->getOperand(0)))
      accumulateOuter(op, rowValue(op->getOperand(0)), nullptr);
}

void FusedEmitter::emitPass(unsigned pass) {
  passReductions.clear();
  bool hasWork = false;
  for (Operation &op : body.without_terminator()) {
    Value result = op.getResult(0);
    bool readsPoint = op.getNumOperands() > 0 &&
                      domain.contains(op.getOperand(0)) &&
                      domain.isPoint(op.getOperand(0));
    if (domain.isRowReduction(&op) && readsPoint &&
        domain.getPass(result) == pass + 1)
      passReductions.push_back(&op);
    if (domain.isOuterReduction(&op) && readsPoint &&
        domain.getPass(result) == pass) {
      hasWork = true;
      if (!domain.isPoint(result))
        passReductions.push_back(&op); // Along the row first, then over rows.
    }
    if (resultOf.contains(result) && domain.isPoint(result) &&
        domain.getPass(result) == pass && !domain.isOuterReduction(&op))
      hasWork = true;
    // Row values that this pass may use, before its loop.
    if (!domain.isPoint(result) && !domain.isOuterReduction(&op) &&
        !rowKnown.contains(result) && domain.getPass(result) <= pass &&
        !(domain.isRowReduction(&op) && readsPoint))
      rowValue(result);
  }
  if (hasWork || !passReductions.empty())
    emitColumns(pass, 0, domain.getColumns());
}

// Walks the row with one accumulator per reduction, then reduces each to a
// scalar.
void FusedEmitter::emitColumns(unsigned pass, int64_t begin, int64_t end) {
  int64_t main = (end - begin) / width * width;
  SmallVector<Value> accumulators;
  for (Operation *op : passReductions) {
    Type type = getElementTypeOrSelf(op->getOperand(0).getType());
    if (width > 1)
      type = VectorType::get({width}, type);
    Reduction reduction = cast<Structured>(op).getReduction();
    accumulators.push_back(arith::ConstantOp::create(
        builder, loc, getNeutral(builder, reduction, type)));
  }
  if (main > 0) {
    auto loop = scf::ForOp::create(builder, loc, index().constant(begin),
                                   index().constant(begin + main),
                                   index().constant(width), accumulators);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    Points points(loop.getInductionVar(), Value(), pass);
    SmallVector<Value> carried(loop.getRegionIterArgs());
    SmallVector<Value> next = emitPoints(points, carried);
    if (!accumulators.empty())
      scf::YieldOp::create(builder, loc, next);
    accumulators.assign(loop.getResults().begin(), loop.getResults().end());
  }
  if (begin + main < end) {
    Points points(index().constant(begin + main), tailMask(end - begin - main),
                  pass);
    accumulators = emitPoints(points, accumulators);
  }
  for (auto [op, accumulator] : llvm::zip_equal(passReductions, accumulators)) {
    Value total = accumulator;
    if (width > 1) {
      auto kind = cast<Structured>(op).getReduction() == Reduction::max
                      ? vector::CombiningKind::MAXIMUMF
                      : vector::CombiningKind::ADD;
      total = vector::ReductionOp::create(builder, loc, kind, accumulator);
    }
    if (domain.isOuterReduction(op))
      accumulateOuter(op, total, nullptr);
    else
      rowKnown[op->getResult(0)] = total;
  }
}

// Everything one place of the row contributes in this pass. All loads of a
// place come before its stores, so that a result may lie over an operand.
SmallVector<Value> FusedEmitter::emitPoints(Points &points,
                                            ArrayRef<Value> accumulators) {
  SmallVector<Value> next;
  for (auto [op, accumulator] : llvm::zip_equal(passReductions, accumulators)) {
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
  for (auto [position, result] : llvm::enumerate(results)) {
    Operation *op = result.getDefiningOp();
    bool isOuter = op && domain.isOuterReduction(op);
    if (domain.isPoint(result) && !isOuter &&
        domain.getPass(result) == points.pass)
      stores.push_back({position, pointValue(result, points)});
  }
  SmallVector<std::pair<Operation *, Value>> sums;
  for (Operation *op : outer)
    if (domain.isPoint(op->getResult(0)) &&
        domain.getPass(op->getResult(0)) == points.pass)
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
  int64_t size = points ? domain.getColumns() : 1;
  Value place = index().add(index().constant(partials[op]),
                            index().mul(chunk, llvm::alignTo(size, 16)));
  if (!points) {
    Value old = loadElement(builder, loc, scratch(), place, scratchType);
    storeElement(builder, loc, combine(builder, loc, reduction, old, value),
                 scratch(), place);
    return;
  }
  place = index().add(place, points->column);
  Value old = loadPoints(scratch(), place, scratchType, points->mask);
  storePoints(combine(builder, loc, reduction, old, value), scratch(), place,
              points->mask);
}

StagePlan planFused(StringRef symbol, Block &body, const KernelDomain &domain,
                    const CpuTarget &target, const FusedTuning &) {
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(body.getParentOp()->getContext()));
  return FusedEmitter(*module, symbol, body, domain, target).emit();
}

StagePlan emitFused(ModuleOp module, StringRef symbol, Block &body,
                    const KernelDomain &domain, const CpuTarget &target,
                    const FusedTuning &) {
  return FusedEmitter(module, symbol, body, domain, target).emit();
}

} // namespace kiln::cpu
