// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Per head: pack the transposed keys and the values, then for each block of
// queries compute complete rows of scores, their softmax and its product with
// the values. Complete rows need no running maximum and no rescaling; a block
// of them fits the second-level cache at any sequence worth attending to.
//
// Scores are in units of log2: queries are multiplied by scale * log2(e) when
// they are packed, so that the exponential needs no multiplication.
#include "compiler/backend/cpu/attention/EmitAttention.h"
#include "compiler/backend/cpu/attention/EmitAttentionBlocks.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace kiln::cpu {

namespace {

struct Forward {
  Forward(StringRef symbol, const AttentionShape &shape,
          const CpuTarget &target, const AttentionTuning &tuning)
      : symbol(symbol), shape(shape),
        layout(shape, target, /*strips=*/1, tuning.blockRows,
               target.l2Bytes * tuning.cachePercent / 100),
        plan(shape.types.computedBytes()) {
    keys = plan.take(layout.panels * layout.panelRows * layout.panelColumns);
    values = plan.take(shape.sequence * layout.widthStride);
    queries = plan.take(layout.blockRows * layout.widthStride);
    result = plan.take(layout.blockRows * layout.widthStride);
    scores = plan.take(layout.blockRows * layout.scoreStride);
    maxima = plan.take(layout.blockRows + layout.lanes);
    sums = plan.take(layout.blockRows + layout.lanes);
    int64_t pairs = shape.batch * shape.heads;
    int64_t groups = std::min<int64_t>(
        llvm::divideCeil(tuning.enoughItems, pairs), layout.blocks);
    blocksPerGroup = llvm::divideCeil(layout.blocks, groups);
    groupsPerPair = llvm::divideCeil(layout.blocks, blocksPerGroup);
  }

  StagePlan listStages() const;
  void emitItem(VectorBuilder &code, func::FuncOp stage, Value item);
  void emitBlock(VectorBuilder &code, AttentionBlocks &steps,
                 const QueryBlock &block, Place queriesIn, Place out,
                 Place logSumExp);
  void emitSoftmax(VectorBuilder &code, AttentionBlocks &steps,
                   const QueryBlock &block, ArrayRef<Place> places, Value row);
  void emitLogSumExp(VectorBuilder &code, const QueryBlock &block,
                     ArrayRef<Place> places, Place out);
  void emitResult(VectorBuilder &code, const QueryBlock &block, Place result,
                  Place sums, Place out);
  Place at(VectorBuilder &code, int64_t part) {
    return code.offset(scratch, part);
  }

  std::string symbol;
  AttentionShape shape;
  AttentionLayout layout;
  ScratchPlan plan;
  int64_t keys, values, queries, result, scores, maxima, sums;
  int64_t blocksPerGroup, groupsPerPair;
  Place scratch;
};

} // namespace

void Forward::emitSoftmax(VectorBuilder &code, AttentionBlocks &steps,
                          const QueryBlock &block, ArrayRef<Place> places,
                          Value row) {
  Place line = code.offset(places[0], code.multiply(row, layout.scoreStride));
  Value lowest = code.splat(-std::numeric_limits<double>::infinity());
  Value maximum =
      steps
          .forVisible(block, row, {lowest},
                      [&](Value column, Value mask, ValueRange carried) {
                        Value score = code.load(code.offset(line, column));
                        if (mask)
                          score = code.select(mask, score, lowest);
                        return SmallVector<Value>{
                            code.largest(carried.front(), score)};
                      })
          .front();
  maximum = code.largestLane(maximum);
  Value zero = code.splat(0.0);
  Value sum =
      steps
          .forVisible(block, row, {zero},
                      [&](Value column, Value mask, ValueRange carried) {
                        Place place = code.offset(line, column);
                        Value weight = code.exp2(
                            code.subtractFloat(code.load(place), maximum));
                        if (mask)
                          weight = code.select(mask, weight, zero);
                        code.store(weight, place);
                        return SmallVector<Value>{
                            code.addFloat(carried.front(), weight)};
                      })
          .front();
  steps.clearHidden(block, row, {line});
  code.storeFirst(maximum, code.offset(places[1], row));
  code.storeFirst(code.sumLanes(sum), code.offset(places[2], row));
}

// Logarithms are taken for whole vectors of rows; one at a time they would
// cost a tenth of the kernel at short sequences.
void Forward::emitLogSumExp(VectorBuilder &code, const QueryBlock &block,
                            ArrayRef<Place> places, Place out) {
  code.loop(code.index(0), block.rows, layout.lanes, [&](Value row) {
    Value maximum = code.load(code.offset(places[1], row));
    Value sum = code.load(code.offset(places[2], row));
    Value result = code.multiplyFloat(code.addFloat(maximum, code.log2(sum)),
                                      code.splat(std::log(2.0)));
    code.storeMasked(result, code.offset(code.offset(out, block.first), row),
                     code.maskBelow(code.subtract(block.rows, row)));
  });
}

void Forward::emitResult(VectorBuilder &code, const QueryBlock &block,
                         Place result, Place sums, Place out) {
  int64_t outStride = shape.heads * shape.headWidth;
  code.loop(code.index(0), block.rows, 1, [&](Value row) {
    Value sum = code.splat(code.loadScalar(code.offset(sums, row)));
    Value inverse = code.divideFloat(code.splat(1.0), sum);
    Place target =
        code.offset(out, code.multiply(code.add(block.first, row), outStride));
    code.copyRowExactly(
        code.offset(result, code.multiply(row, layout.widthStride)), target,
        shape.headWidth, inverse);
  });
}

void Forward::emitBlock(VectorBuilder &code, AttentionBlocks &steps,
                        const QueryBlock &block, Place queriesIn, Place out,
                        Place logSumExp) {
  steps.packRows(queriesIn, 3 * shape.heads * shape.headWidth,
                 at(code, queries), block.first,
                 code.multiply(block.tiles, layout.rowTile),
                 shape.scale / std::log(2.0));
  steps.multiplyPanels(block, at(code, queries), at(code, keys),
                       at(code, scores));
  steps.callStep(
      "softmax", block,
      {at(code, scores), at(code, maxima), at(code, sums), logSumExp},
      [&](const QueryBlock &inner, ArrayRef<Place> places) {
        code.loop(code.index(0), inner.rows, 1, [&](Value row) {
          emitSoftmax(code, steps, inner, places, row);
        });
        emitLogSumExp(code, inner, places, places[3]);
      });
  steps.multiplyScores(block, at(code, scores), at(code, values),
                       at(code, result));
  steps.callStep("result", block, {at(code, result), at(code, sums), out},
                 [&](const QueryBlock &inner, ArrayRef<Place> places) {
                   emitResult(code, inner, places[0], places[1], places[2]);
                 });
}

void Forward::emitItem(VectorBuilder &code, func::FuncOp stage, Value item) {
  AttentionBlocks steps(code, symbol, shape, layout);
  int64_t rowStride = shape.heads * shape.headWidth;
  Value pair = code.divide(item, groupsPerPair);
  Value group = code.remainder(item, groupsPerPair);
  Value batch = code.divide(pair, shape.heads);
  Value column =
      code.multiply(code.remainder(pair, shape.heads), shape.headWidth);
  Place in = {
      stage.getArgument(0),
      code.add(code.multiply(batch, shape.sequence * 3 * rowStride), column)};
  unsigned first = 1 + shape.hasLengths;
  Place out = {
      stage.getArgument(first),
      code.add(code.multiply(batch, shape.sequence * rowStride), column)};
  Place logSumExp = {stage.getArgument(first + 1),
                     code.multiply(pair, shape.sequence)};
  Value length = loadLength(code, shape, stage, 1, batch);

  // Groups of one pair that follow each other on a worker share its keys.
  OpBuilder &builder = code.getBuilder();
  auto isEqual = [&](Value left, Value right) -> Value {
    return arith::CmpIOp::create(builder, code.getLoc(),
                                 arith::CmpIPredicate::eq, left, right);
  };
  Value isNew = arith::OrIOp::create(builder, code.getLoc(),
                                     isEqual(item, getRange(stage).begin),
                                     isEqual(group, code.index(0)));
  auto ifNew = scf::IfOp::create(builder, code.getLoc(), isNew, false);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(ifNew.thenBlock());
    steps.packTransposed(code.offset(in, rowStride), 3 * rowStride,
                         at(code, keys), 1.0);
    steps.packRows(code.offset(in, 2 * rowStride), 3 * rowStride,
                   at(code, values), code.index(0), code.index(shape.sequence),
                   1.0);
  }
  Value begin = code.multiply(group, blocksPerGroup);
  Value end =
      code.minimum(code.add(begin, blocksPerGroup), code.index(layout.blocks));
  code.loop(begin, end, 1, [&](Value number) {
    QueryBlock block = steps.getBlock(number, code.index(0), length);
    emitBlock(code, steps, block, in, out, logSumExp);
  });
}

StagePlan Forward::listStages() const {
  StagePlan stages;
  stages.stages = {{symbol, shape.batch * shape.heads * groupsPerPair}};
  stages.scratchBytesPerWorker =
      plan.getElements() * shape.types.computedBytes();
  return stages;
}

StagePlan planAttention(StringRef symbol, const AttentionShape &shape,
                        const CpuTarget &target,
                        const AttentionTuning &tuning) {
  return Forward(symbol, shape, target, tuning).listStages();
}

StagePlan emitAttention(ModuleOp module, StringRef symbol,
                        const AttentionShape &shape, const CpuTarget &target,
                        const AttentionTuning &tuning) {
  Forward forward(symbol, shape, target, tuning);
  int64_t elements =
      shape.batch * shape.sequence * shape.heads * shape.headWidth;
  int64_t scratchElements = forward.plan.getElements();
  const ElementTypes &types = shape.types;
  func::FuncOp stage = createFlatStage(
      module, symbol, shape,
      {{3 * elements, types.operands},
       {elements, types.results},
       {shape.batch * shape.heads * shape.sequence, types.computed()},
       {scratchElements * kMaxWorkers, types.computed()}},
      1);
  VectorBuilder code(OpBuilder::atBlockEnd(&stage.front()), stage.getLoc(),
                     shape.types.computed(), forward.layout.lanes);
  StageRange range = getRange(stage);
  forward.scratch = {stage.getArgument(3 + shape.hasLengths),
                     code.multiply(range.worker, scratchElements)};
  code.loop(range.begin, range.end, 1,
            [&](Value item) { forward.emitItem(code, stage, item); });
  func::ReturnOp::create(code.getBuilder(), code.getLoc());
  return forward.listStages();
}

} // namespace kiln::cpu
