// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Per head, for each block of queries in order:
//   P = exp(S - logSumExp)        S recomputed from packed queries and keys
//   dS = P * (dO V^T - delta)     delta = row sums of dO * O
//   dQ = dS K,  dV += P^T dO,  dK += dS^T Q
// Queries and keys are packed already multiplied by the scale, and the
// transposed keys by log2(e), so that no product needs a factor afterwards.
#include "compiler/backend/cpu/attention/EmitAttention.h"
#include "compiler/backend/cpu/attention/EmitAttentionBlocks.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace kiln::cpu {

namespace {

/// The gradients that one stage writes, and its groups of a pair.
struct Part {
  std::string symbol;
  bool hasQueries, hasKeys;
  int64_t groupSize, groups;
};

// Fixes the order of summation of the keys' gradients.
constexpr int64_t kBlockRows = 48;

struct Backward {
  Backward(StringRef symbol, const AttentionShape &shape,
           const CpuTarget &target, const AttentionGradientTuning &tuning)
      : symbol(symbol), shape(shape),
        layout(shape, target, /*strips=*/2, kBlockRows, target.l2Bytes),
        plan(shape.types.computedBytes()) {
    int64_t panelElements =
        layout.panels * layout.panelRows * layout.panelColumns;
    int64_t headElements = layout.keyRows * layout.widthStride;
    int64_t blockElements = layout.blockRows * layout.widthStride;
    keysTransposed = plan.take(panelElements);
    valuesTransposed = plan.take(panelElements);
    keys = plan.take(headElements);
    keyGradient = plan.take(headElements);
    valueGradient = plan.take(headElements);
    queries = plan.take(blockElements);
    outGradient = plan.take(blockElements);
    queryGradient = plan.take(blockElements);
    scores = plan.take(layout.blockRows * layout.scoreStride);
    scoreGradient = plan.take(layout.blockRows * layout.scoreStride);
    deltas = plan.take(layout.blockRows);
    divide(tuning);
  }

  void divide(const AttentionGradientTuning &tuning);
  StagePlan listStages() const;
  void emitStage(ModuleOp module, const Part &part);
  void findPair(VectorBuilder &code, func::FuncOp stage, Value pair);
  void emitItem(VectorBuilder &code, Value group, const Part &part);
  void emitBlock(VectorBuilder &code, AttentionBlocks &steps,
                 const QueryBlock &block, const Part &part);
  void emitScoreGradient(VectorBuilder &code, AttentionBlocks &steps,
                         const QueryBlock &block, ArrayRef<Place> places,
                         Value row);
  void emitDeltas(VectorBuilder &code, const QueryBlock &block,
                  ArrayRef<Place> places);
  Place at(VectorBuilder &code, int64_t partBegin) {
    return code.offset(scratch, partBegin);
  }
  int64_t rowStride() const { return shape.heads * shape.headWidth; }

  std::string symbol;
  AttentionShape shape;
  AttentionLayout layout;
  ScratchPlan plan;
  SmallVector<Part> parts;
  int64_t keysTransposed, valuesTransposed, keys, keyGradient, valueGradient;
  int64_t queries, outGradient, queryGradient, scores, scoreGradient, deltas;
  Place scratch, in, out, logSumExp, outGradientIn, gradient;
  Value length; ///< Of the sample of the pair.
};

} // namespace

void Backward::emitScoreGradient(VectorBuilder &code, AttentionBlocks &steps,
                                 const QueryBlock &block,
                                 ArrayRef<Place> places, Value row) {
  Value start = code.multiply(row, layout.scoreStride);
  Place scoreLine = code.offset(places[0], start);
  Place gradientLine = code.offset(places[1], start);
  Value delta = code.splat(code.loadScalar(code.offset(places[2], row)));
  Value base =
      code.multiplyFloat(code.splat(code.loadScalar(code.offset(
                             code.offset(places[3], block.first), row))),
                         code.splat(1.0 / std::log(2.0)));
  steps.forVisible(block, row, {}, [&](Value column, Value mask, ValueRange) {
    Place scorePlace = code.offset(scoreLine, column);
    Place gradientPlace = code.offset(gradientLine, column);
    Value weight = code.exp2(code.subtractFloat(code.load(scorePlace), base));
    Value change = code.multiplyFloat(
        weight, code.subtractFloat(code.load(gradientPlace), delta));
    if (mask) {
      weight = code.select(mask, weight, code.splat(0.0));
      change = code.select(mask, change, code.splat(0.0));
    }
    code.store(weight, scorePlace);
    code.store(change, gradientPlace);
    return SmallVector<Value>();
  });
  steps.clearHidden(block, row, {scoreLine, gradientLine});
}

void Backward::emitDeltas(VectorBuilder &code, const QueryBlock &block,
                          ArrayRef<Place> places) {
  code.loop(code.index(0), block.rows, 1, [&](Value row) {
    Value shift = code.multiply(code.add(block.first, row), rowStride());
    Value delta = code.dotRows(code.offset(places[0], shift),
                               code.offset(places[1], shift), shape.headWidth);
    code.storeFirst(delta, code.offset(places[2], row));
  });
}

void Backward::emitBlock(VectorBuilder &code, AttentionBlocks &steps,
                         const QueryBlock &block, const Part &part) {
  Value padded = code.multiply(block.tiles, layout.rowTile);
  steps.packRows(in, 3 * rowStride(), at(code, queries), block.first, padded,
                 shape.scale);
  steps.packRows(outGradientIn, rowStride(), at(code, outGradient), block.first,
                 padded, 1.0);
  steps.callStep("deltas", block, {out, outGradientIn, at(code, deltas)},
                 [&](const QueryBlock &inner, ArrayRef<Place> places) {
                   emitDeltas(code, inner, places);
                 });
  steps.multiplyPanels(block, at(code, queries), at(code, keysTransposed),
                       at(code, scores));
  steps.multiplyPanels(block, at(code, outGradient), at(code, valuesTransposed),
                       at(code, scoreGradient));
  steps.callStep(
      "score_gradient", block,
      {at(code, scores), at(code, scoreGradient), at(code, deltas), logSumExp},
      [&](const QueryBlock &inner, ArrayRef<Place> places) {
        code.loop(code.index(0), inner.rows, 1, [&](Value row) {
          emitScoreGradient(code, steps, inner, places, row);
        });
      });
  if (part.hasKeys) {
    steps.multiplyScoresTransposed(block, at(code, scores),
                                   at(code, outGradient),
                                   at(code, valueGradient));
    steps.multiplyScoresTransposed(block, at(code, scoreGradient),
                                   at(code, queries), at(code, keyGradient));
  }
  if (!part.hasQueries)
    return;
  steps.multiplyScores(block, at(code, scoreGradient), at(code, keys),
                       at(code, queryGradient));
  steps.writeRows(
      at(code, queryGradient),
      code.offset(gradient, code.multiply(block.first, 3 * rowStride())),
      3 * rowStride(), block.rows);
}

void Backward::findPair(VectorBuilder &code, func::FuncOp stage, Value pair) {
  Value batch = code.divide(pair, shape.heads);
  Value column =
      code.multiply(code.remainder(pair, shape.heads), shape.headWidth);
  Value narrow =
      code.add(code.multiply(batch, shape.sequence * rowStride()), column);
  Value wide =
      code.add(code.multiply(batch, shape.sequence * 3 * rowStride()), column);
  in = {stage.getArgument(0), wide};
  out = {stage.getArgument(1), narrow};
  logSumExp = {stage.getArgument(2), code.multiply(pair, shape.sequence)};
  outGradientIn = {stage.getArgument(3), narrow};
  gradient = {stage.getArgument(4 + shape.hasLengths), wide};
  length = loadLength(code, shape, stage, 4, batch);
}

// A group is of queries where the stage writes their gradient, else of keys.
void Backward::emitItem(VectorBuilder &code, Value group, const Part &part) {
  AttentionBlocks steps(code, symbol, shape, layout);
  Value sequence = code.index(shape.sequence), zero = code.index(0);
  Value begin = code.multiply(group, part.groupSize);
  Value end = code.minimum(code.add(begin, part.groupSize), sequence);
  Place keysIn = code.offset(in, rowStride());
  Place valuesIn = code.offset(in, 2 * rowStride());
  steps.packTransposed(keysIn, 3 * rowStride(), at(code, keysTransposed),
                       1.0 / std::log(2.0));
  steps.packTransposed(valuesIn, 3 * rowStride(), at(code, valuesTransposed),
                       1.0);
  Value keyBegin = zero, keyEnd = sequence;
  Value firstBlock = zero, endBlock = code.index(layout.blocks);
  if (part.hasQueries) {
    steps.packRows(keysIn, 3 * rowStride(), at(code, keys), zero, sequence,
                   shape.scale);
    firstBlock = code.divide(begin, layout.blockRows);
    endBlock = code.divideUp(end, layout.blockRows);
  } else {
    keyBegin = begin;
    keyEnd = end;
    if (shape.isCausal)
      firstBlock = code.divide(begin, layout.blockRows);
  }
  if (part.hasKeys)
    for (int64_t target : {keyGradient, valueGradient})
      code.loop(zero, code.index(layout.keyRows * layout.widthStride),
                layout.lanes, [&](Value position) {
                  code.store(code.splat(0.0),
                             code.offset(at(code, target), position));
                });
  Value seenEnd = code.minimum(keyEnd, length);
  code.loop(firstBlock, endBlock, 1, [&](Value number) {
    emitBlock(code, steps, steps.getBlock(number, keyBegin, seenEnd), part);
  });
  if (!part.hasKeys)
    return;
  for (auto [source, slot] : {std::pair(keyGradient, 1), {valueGradient, 2}})
    steps.writeRows(code.offset(at(code, source),
                                code.multiply(keyBegin, layout.widthStride)),
                    code.offset(code.offset(gradient, slot * rowStride()),
                                code.multiply(keyBegin, 3 * rowStride())),
                    3 * rowStride(), code.subtract(keyEnd, keyBegin));
}

void Backward::emitStage(ModuleOp module, const Part &part) {
  int64_t pairs = shape.batch * shape.heads;
  int64_t elements = pairs * shape.sequence * shape.headWidth;
  const ElementTypes &types = shape.types;
  func::FuncOp stage =
      createFlatStage(module, part.symbol, shape,
                      {{3 * elements, types.operands},
                       {elements, types.operands},
                       {pairs * shape.sequence, types.computed()},
                       {elements, types.operands},
                       {3 * elements, types.results},
                       {plan.getElements() * kMaxWorkers, types.computed()}},
                      4);
  VectorBuilder code(OpBuilder::atBlockEnd(&stage.front()), stage.getLoc(),
                     shape.types.computed(), layout.lanes);
  StageRange range = getRange(stage);
  scratch = {stage.getArgument(5 + shape.hasLengths),
             code.multiply(range.worker, plan.getElements())};
  code.loop(range.begin, range.end, 1, [&](Value item) {
    findPair(code, stage, code.divide(item, part.groups));
    emitItem(code, code.remainder(item, part.groups), part);
  });
  func::ReturnOp::create(code.getBuilder(), code.getLoc());
}

// Groups end where tiles of every kind end.
void Backward::divide(const AttentionGradientTuning &tuning) {
  int64_t pairs = shape.batch * shape.heads;
  int64_t unit = std::lcm(layout.rowTile, layout.panelColumns);
  if (pairs >= tuning.fewPairs || shape.sequence < 4 * unit) {
    parts = {{symbol, true, true, shape.sequence, 1}};
    return;
  }
  auto add = [&](StringRef name, bool hasQueries, int64_t step) {
    int64_t wanted = llvm::divideCeil(tuning.enoughItems, pairs);
    int64_t size =
        llvm::alignTo(llvm::divideCeil(shape.sequence, wanted), step);
    parts.push_back({symbol + name.str(), hasQueries, !hasQueries, size,
                     int64_t(llvm::divideCeil(shape.sequence, size))});
  };
  add("_queries", true, layout.blockRows);
  add("_keys", false, unit);
}

StagePlan Backward::listStages() const {
  StagePlan stages;
  for (const Part &part : parts)
    stages.stages.push_back(
        {part.symbol, shape.batch * shape.heads * part.groups});
  stages.scratchBytesPerWorker =
      plan.getElements() * shape.types.computedBytes();
  return stages;
}

StagePlan planAttentionGradient(StringRef symbol, const AttentionShape &shape,
                                const CpuTarget &target,
                                const AttentionGradientTuning &tuning) {
  return Backward(symbol, shape, target, tuning).listStages();
}

StagePlan emitAttentionGradient(ModuleOp module, StringRef symbol,
                                const AttentionShape &shape,
                                const CpuTarget &target,
                                const AttentionGradientTuning &tuning) {
  Backward backward(symbol, shape, target, tuning);
  for (const Part &part : backward.parts)
    backward.emitStage(module, part);
  return backward.listStages();
}

} // namespace kiln::cpu
