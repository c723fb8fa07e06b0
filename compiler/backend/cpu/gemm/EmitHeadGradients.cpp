// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stages of the head that turn powers into dX and dW. A block of the
// vocabulary is used for both while its probabilities are in cache.
#include "compiler/backend/cpu/gemm/HeadWriter.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace kiln::cpu {

void HeadWriter::computeGradients(Value slice, const Chunk &chunk) {
  Value begin = write.mul(slice, plan.sliceBlocks);
  Value end =
      write.min(write.add(begin, plan.sliceBlocks), write.index(plan.blocks));
  write.loop(begin, end, 1, [&](Value block) {
    if (usesDots())
      return computeGradientDots(block, slice, chunk);
    packWeights(block);
    write.loop(write.index(0), chunk.count, 1, [&](Value inChunk) {
      scaleProbabilities(block, inChunk, chunk);
      accumulateInputGradient(block, slice, inChunk);
    });
    computeWeightGradient(block, chunk);
  });
}

// W^T of a block as panels [width / rows][row of W][rows]. As in packing A for
// a product, a register is wider than a row of a panel and the surplus is
// overwritten by the next row.
void HeadWriter::packWeights(Value block) {
  int64_t rows = plan.tile.rows, wide = llvm::PowerOf2Ceil(rows);
  Value begin = write.mul(block, plan.blockRows);
  Value count = write.sub(blockEnd(block), begin);
  int64_t wideTiles = shape.width < wide ? 0 : (shape.width - wide) / rows + 1;
  write.loop(write.index(0), count, 1, [&](Value row) {
    Value from = write.mul(write.add(begin, row), shape.width);
    Value to = write.add(workerBase, write.mul(row, rows));
    auto copy = [&](Value tile, int64_t size) {
      write.store(write.load(w, write.add(from, write.mul(tile, rows)), size),
                  scratch,
                  write.add(to, write.mul(tile, plan.leftPanelStride)));
    };
    write.loop(write.index(0), write.index(wideTiles), 1,
               [&](Value tile) { copy(tile, wide); });
    for (int64_t tile = wideTiles; tile * rows < shape.width; ++tile)
      copy(write.index(tile), std::min(rows, shape.width - tile * rows));
  });
}

void HeadWriter::scaleProbabilities(Value block, Value inChunk,
                                    const Chunk &chunk) {
  Value begin = write.mul(block, plan.blockRows);
  Value rows = write.sub(blockEnd(block), begin);
  Value panel = probabilityPanel(block, inChunk);
  Value factor =
      write.load(scratch, statistics(plan.factors, block, inChunk), plan.lanes);
  write.loop(write.index(0), rows, 1, [&](Value row) {
    Value place = write.add(panel, write.mul(row, plan.lanes));
    write.store(mulFloat(write.load(scratch, place, plan.lanes), factor),
                scratch, place);
  });
  forEachToken(write.add(chunk.first, inChunk), [&](Value lane, Value label) {
    Value row = write.sub(label, begin);
    write.branch(write.isBelow(row, rows), [&] {
      Value place =
          write.add(write.add(panel, write.mul(row, plan.lanes)), lane);
      write.store(subFloat(write.loadScalar(scratch, place), scalar(1)),
                  scratch, place);
    });
  });
}

// dX^T[d,t] += sum over the rows v of the block of W[v,d] P[v,t].
void HeadWriter::accumulateInputGradient(Value block, Value slice,
                                         Value inChunk) {
  Value depth = write.sub(blockEnd(block), write.mul(block, plan.blockRows));
  int64_t factor = std::gcd(plan.blockRows, shape.vocabulary % plan.blockRows);
  VectorOperand right = {scratch, probabilityPanel(block, inChunk), plan.lanes};
  Value isFirst = write.isEqual(block, write.mul(slice, plan.sliceBlocks));
  Value number = write.add(write.mul(slice, plan.chunkPanels), inChunk);
  Value base =
      write.add(write.mul(number, shape.width * plan.lanes), plan.partials);
  forEachTile(
      write.index(0), write.index(shape.width), shape.width,
      [&](Value column, int64_t rows) {
        Value tile = write.div(column, plan.tile.rows);
        ScalarOperand left = {
            scratch,
            write.add(workerBase, write.mul(tile, plan.leftPanelStride)), 1,
            plan.tile.rows};
        Value place = write.add(base, write.mul(column, plan.lanes));
        prefetchTile(rows, plan.lanes, scratch, place, plan.lanes);
        SmallVector<Value> sums =
            multiply(rows, plan.lanes, left, right, depth, factor);
        Place target = {scratch, place};
        auto store = [&](const Place &addend) {
          storeTile(sums, rows, plan.lanes, target, plan.lanes, addend);
        };
        write.branch(isFirst, [&] { store({}); }, [&] { store(target); });
      });
}

// Elements of dW from `place` on: where they go after a chunk, and the sums of
// chunks before it.
void HeadWriter::storeWeights(
    const Chunk &chunk, Value place,
    llvm::function_ref<void(const Place &target, const Place &addend)> store) {
  Place weights = {dw, place};
  if (plan.chunks == 1)
    return store(weights, {});
  Place sums = weights;
  if (plan.weightSums >= 0)
    sums = {scratch, write.add(place, plan.weightSums)};
  Value isFirst = write.isEqual(chunk.first, write.index(0));
  Value isLast = write.isEqual(write.add(chunk.first, chunk.count),
                               write.index(plan.panels));
  auto storeEarlier = [&] {
    write.branch(isFirst, [&] { store(sums, {}); }, [&] { store(sums, sums); });
  };
  if (plan.weightSums < 0)
    return storeEarlier();
  write.branch(isLast, [&] { store(weights, sums); }, storeEarlier);
}

// dW[v,d] = or += sum over the tokens t of the chunk of P[v,t] X[t,d].
void HeadWriter::computeWeightGradient(Value block, const Chunk &chunk) {
  Value begin = write.mul(block, plan.blockRows), end = blockEnd(block);
  Value depth = write.mul(chunk.count, plan.lanes);
  Value probabilities = probabilityPanel(block, write.index(0));
  int64_t square = plan.lanes * plan.lanes;
  auto emitColumn = [&](Value subBegin, Value subEnd, Value column,
                        int64_t columns) {
    Value panel =
        write.mul(write.div(column, plan.lanes), plan.panels * square);
    VectorOperand right = {
        scratch,
        write.add(write.add(panel, write.mul(chunk.first, square)),
                  plan.columns),
        plan.lanes};
    forEachTile(
        subBegin, subEnd, shape.vocabulary, [&](Value row, int64_t rows) {
          ScalarOperand left = {
              scratch,
              write.add(probabilities,
                        write.mul(write.sub(row, begin), plan.lanes)),
              plan.lanes,
              1,
              plan.lanes,
              plan.blockRows * plan.lanes};
          Value place = write.add(write.mul(row, shape.width), column);
          prefetchTile(rows, columns, dw, place, shape.width);
          SmallVector<Value> sums =
              multiply(rows, columns, left, right, depth, plan.lanes);
          storeWeights(
              chunk, place, [&](const Place &target, const Place &addend) {
                storeTile(sums, rows, columns, target, shape.width, addend);
              });
        });
  };
  int64_t tail = shape.width % plan.lanes;
  write.loop(begin, end, plan.subRows, [&](Value subBegin) {
    Value subEnd = write.min(write.add(subBegin, plan.subRows), end);
    write.loop(write.index(0), write.index(shape.width - tail), plan.lanes,
               [&](Value column) {
                 emitColumn(subBegin, subEnd, column, plan.lanes);
               });
    if (tail != 0)
      emitColumn(subBegin, subEnd, write.index(shape.width - tail), tail);
  });
}

// Adds the slices in order and transposes the panel back.
void HeadWriter::reduceInputGradient(Value inChunk, const Chunk &chunk) {
  if (usesDots())
    return reduceInputDots(inChunk, chunk);
  int64_t width = shape.width, lanes = write.lanes;
  int64_t sliceStride = plan.chunkPanels * width * plan.lanes;
  Value token = write.mul(write.add(chunk.first, inChunk), plan.lanes);
  Value base = write.add(write.mul(inChunk, width * plan.lanes), plan.partials);
  auto emitSquare = [&](Value column, int64_t columns, int64_t group) {
    SmallVector<Value> square;
    for (int64_t i = 0; i < lanes; ++i) {
      if (i >= columns) {
        square.push_back(write.zeros(lanes));
        continue;
      }
      Value place = write.add(write.add(base, write.mul(column, plan.lanes)),
                              i * plan.lanes + group);
      square.push_back(write.fold(
          write.index(0), write.index(plan.slices), 1, write.zeros(lanes),
          [&](Value slice, Value carried) {
            Value at = write.add(place, write.mul(slice, sliceStride));
            return addFloat(carried, write.load(scratch, at, lanes));
          }));
    }
    write.transpose(square);
    for (int64_t i = 0; i < lanes; ++i) {
      Value row = write.add(token, group + i);
      auto storeRow = [&] {
        write.store(write.firstLanes(square[i], columns), dx,
                    write.add(write.mul(row, width), column));
      };
      if (shape.tokens % plan.lanes == 0)
        storeRow();
      else
        write.branch(write.isBelow(row, write.index(shape.tokens)), storeRow);
    }
  };
  int64_t tail = width % lanes;
  for (int64_t group = 0; group < plan.lanes; group += lanes) {
    write.loop(write.index(0), write.index(width - tail), lanes,
               [&](Value column) { emitSquare(column, lanes, group); });
    if (tail != 0)
      emitSquare(write.index(width - tail), tail, group);
  }
}

} // namespace kiln::cpu
