// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The head by a DotUnit, whose operands are panels of blocks of 32:
//   logits  L[v,t] = W X^T   W is packed by block, X once
//   inputs  dX[t,d] += P^T W   P^T is transposed by panel, W packed by block
//   weights dW[v,d] = P X    probabilities are stored as this left operand
// Probabilities are powers of 16 bits until the sums of all blocks are known.
// That of a label less 1 is computed from its logit: where it is almost 1, the
// difference would be rounding alone.
#include "compiler/backend/cpu/gemm/HeadWriter.h"

using namespace mlir;

namespace kiln::cpu {

// X^T as the right operand of logits, and X as that of dW, of one panel.
void HeadWriter::packTokenDots(Value panel) {
  int64_t width = shape.width;
  Value token = write.mul(panel, kDotBlock);
  Value from = write.mul(token, width);
  Value tokens = limit(write.sub(write.index(shape.tokens), token));
  Value to =
      write.add(write.mul(panel, plan.dots.widthStride), 2 * plan.transposed);
  dots.packRight({x, from, 1, width}, write.index(width), tokens,
                 write.index(1), panels, to, plan.dots.widthStride);
  if (shape.gradients)
    dots.packRight(
        {x, from, width, 1}, tokens, write.index(width),
        write.index(plan.columnPanels), panels,
        write.add(write.mul(panel, kDotStepElements), 2 * plan.columns),
        plan.dots.tokenStride);
}

// Rows of W as the left operand of logits.
void HeadWriter::packRowDots(Value begin, Value rows) {
  Value base = write.mul(workerBase, 2);
  write.loop(write.index(0), countPanels(rows), 1, [&](Value number) {
    Value row = write.mul(number, kDotBlock);
    Value from = write.mul(write.add(begin, row), shape.width);
    dots.packLeft({w, from, 1, shape.width}, write.index(shape.width),
                  limit(write.sub(rows, row)), panels,
                  write.add(base, write.mul(number, plan.dots.widthStride)));
  });
}

void HeadWriter::computeLogitDots(Value panel, Value rows, Value logits) {
  Value base = write.mul(workerBase, 2);
  DotWriter::Operand right = {
      panels,
      write.add(write.mul(panel, plan.dots.widthStride), 2 * plan.transposed)};
  Value steps = write.index(llvm::divideCeil(shape.width, kDotBlock));
  write.loop(write.index(0), countPanels(rows), 1, [&](Value number) {
    Value left = write.add(base, write.mul(number, plan.dots.widthStride));
    Value sums = write.add(logits, write.mul(number, kDotStepElements));
    dots.multiply({panels, left}, right, steps, {scratch, sums}, kDotBlock,
                  yes());
  });
}

// Place of the powers of a row, of one panel of tokens.
Value HeadWriter::probabilityDots(Value block, Value row, Value inChunk) {
  Value number = write.add(write.mul(block, plan.dots.blockPanels),
                           write.div(row, kDotBlock));
  Value place = write.add(write.mul(number, plan.dots.probabilityStride),
                          write.mul(inChunk, kDotStepElements));
  return write.add(
      write.add(place, write.mul(write.rem(row, kDotBlock), kDotBlock)),
      2 * plan.probabilities);
}

void HeadWriter::computePowerDots(Value block, Value inChunk, Value rows,
                                  Value logits) {
  findMaximumAndSum(block, inChunk, rows, logits, [&](Value row, Value power) {
    if (shape.gradients)
      write.store(power, panels, probabilityDots(block, row, inChunk));
  });
  if (!shape.gradients)
    return;
  // Rows that the vocabulary does not have are multiplied, too.
  write.loop(rows, write.mul(countPanels(rows), kDotBlock), 1, [&](Value row) {
    write.store(constant(0, kDotBlock), panels,
                probabilityDots(block, row, inChunk));
  });
}

void HeadWriter::computeGradientDots(Value block, Value slice,
                                     const Chunk &chunk) {
  Value begin = write.mul(block, plan.blockRows);
  Value rows = write.sub(blockEnd(block), begin);
  dots.packRight({w, write.mul(begin, shape.width), shape.width, 1}, rows,
                 write.index(shape.width), write.index(plan.columnPanels),
                 panels, write.mul(workerBase, 2), plan.dots.rowStride);
  write.loop(write.index(0), chunk.count, 1, [&](Value inChunk) {
    scaleProbabilityDots(block, inChunk, chunk);
    accumulateInputDots(block, slice, inChunk, countPanels(rows));
  });
  computeWeightDots(block, chunk);
}

void HeadWriter::scaleProbabilityDots(Value block, Value inChunk,
                                      const Chunk &chunk) {
  Value begin = write.mul(block, plan.blockRows);
  Value rows = write.sub(blockEnd(block), begin);
  Value factor =
      write.load(scratch, statistics(plan.factors, block, inChunk), plan.lanes);
  write.loop(write.index(0), rows, 1, [&](Value row) {
    Value place = probabilityDots(block, row, inChunk);
    write.store(mulFloat(write.load(panels, place, kDotBlock), factor), panels,
                place);
  });
  // The loss of a token is minus the logarithm of its label's probability.
  Value losses = write.add(write.mul(inChunk, plan.lanes), plan.labelLogits);
  forEachToken(write.add(chunk.first, inChunk), [&](Value lane, Value label) {
    Value row = write.sub(label, begin);
    write.branch(write.isBelow(row, rows), [&] {
      Value loss = write.loadScalar(scratch, write.add(losses, lane));
      Value probability = exponential(subFloat(scalar(0), loss));
      write.store(subFloat(probability, scalar(1)), panels,
                  write.add(probabilityDots(block, row, inChunk), lane));
    });
  });
}

// dX[t,d] += sum over the rows v of the block of P[v,t] W[v,d].
void HeadWriter::accumulateInputDots(Value block, Value slice, Value inChunk,
                                     Value rowPanels) {
  Value worker = write.mul(workerBase, 2);
  Value left = write.add(worker, 2 * plan.dots.transposed);
  write.loop(write.index(0), rowPanels, 1, [&](Value number) {
    Value from = probabilityDots(block, write.mul(number, kDotBlock), inChunk);
    dots.packLeft({panels, from, kDotBlock, 1}, write.index(kDotBlock),
                  write.index(kDotBlock), panels,
                  write.add(left, write.mul(number, kDotStepElements)));
  });
  Value isFirst = write.isEqual(block, write.mul(slice, plan.sliceBlocks));
  Value number = write.add(write.mul(slice, plan.chunkPanels), inChunk);
  Value sums = write.add(write.mul(number, kDotBlock * plan.dots.paddedWidth),
                         plan.partials);
  write.loop(
      write.index(0), write.index(plan.columnPanels), 1, [&](Value column) {
        Value right = write.add(worker, write.mul(column, plan.dots.rowStride));
        dots.multiply({panels, left}, {panels, right}, rowPanels,
                      {scratch, write.add(sums, write.mul(column, kDotBlock))},
                      plan.dots.paddedWidth, isFirst);
      });
}

// dW[v,d] = or += sum over the tokens t of the chunk of P[v,t] X[t,d].
void HeadWriter::computeWeightDots(Value block, const Chunk &chunk) {
  Value begin = write.mul(block, plan.blockRows), end = blockEnd(block);
  Value tile = write.add(workerBase, plan.dots.tile);
  Value columns =
      write.add(write.mul(chunk.first, kDotStepElements), 2 * plan.columns);
  int64_t tail = shape.width % kDotBlock;
  write.loop(begin, end, kDotBlock, [&](Value row) {
    Value left = probabilityDots(block, write.sub(row, begin), write.index(0));
    Value rows = limit(write.sub(end, row));
    write.loop(
        write.index(0), write.index(plan.columnPanels), 1, [&](Value number) {
          Value right =
              write.add(columns, write.mul(number, plan.dots.tokenStride));
          dots.multiply({panels, left}, {panels, right}, chunk.count,
                        {scratch, tile}, kDotBlock, yes());
          Value place = write.add(write.mul(row, shape.width),
                                  write.mul(number, kDotBlock));
          auto storeRows = [&](int64_t size) {
            storeWeights(chunk, place,
                         [&](const Place &target, const Place &addend) {
                           storeWeightRows(rows, size, target, addend);
                         });
          };
          if (tail == 0)
            return storeRows(kDotBlock);
          write.branch(
              write.isEqual(number, write.index(plan.columnPanels - 1)),
              [&] { storeRows(tail); }, [&] { storeRows(kDotBlock); });
        });
  });
}

// From the worker's tile.
void HeadWriter::storeWeightRows(Value rows, int64_t columns,
                                 const Place &target, const Place &addend) {
  Value tile = write.add(workerBase, plan.dots.tile);
  write.loop(write.index(0), rows, 1, [&](Value row) {
    Value from = write.add(tile, write.mul(row, kDotBlock));
    Value offset = write.mul(row, shape.width);
    for (int64_t j = 0; j < columns; j += write.lanes) {
      int64_t size = std::min(write.lanes, columns - j);
      auto at = [&](const Place &place) {
        return write.add(write.add(place.base, offset), j);
      };
      Value values = write.load(scratch, write.add(from, j), size);
      if (addend.buffer)
        values = addFloat(values, write.load(addend.buffer, at(addend), size));
      write.store(values, target.buffer, at(target));
    }
  });
}

// Adds the slices in order.
void HeadWriter::reduceInputDots(Value inChunk, const Chunk &chunk) {
  int64_t width = shape.width;
  int64_t sliceStride = plan.chunkPanels * kDotBlock * plan.dots.paddedWidth;
  Value token = write.mul(write.add(chunk.first, inChunk), kDotBlock);
  Value tokens = limit(write.sub(write.index(shape.tokens), token));
  write.loop(write.index(0), tokens, 1, [&](Value inPanel) {
    Value number = write.add(write.mul(inChunk, kDotBlock), inPanel);
    Value from =
        write.add(write.mul(number, plan.dots.paddedWidth), plan.partials);
    Value to = write.mul(write.add(token, inPanel), width);
    auto sumColumns = [&](Value column, int64_t columns) {
      Value sum = write.fold(
          write.index(0), write.index(plan.slices), 1, write.zeros(columns),
          [&](Value slice, Value carried) {
            Value at = write.add(write.add(from, column),
                                 write.mul(slice, sliceStride));
            return addFloat(carried, write.load(scratch, at, columns));
          });
      write.store(sum, dx, write.add(to, column));
    };
    int64_t tail = width % write.lanes;
    write.loop(write.index(0), write.index(width - tail), write.lanes,
               [&](Value column) { sumColumns(column, write.lanes); });
    if (tail != 0)
      sumColumns(write.index(width - tail), tail);
  });
}

} // namespace kiln::cpu
