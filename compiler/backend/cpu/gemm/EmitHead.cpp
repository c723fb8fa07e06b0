// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Logits are computed transposed, L[v,t] = W[v] . X[t], in blocks of the
// vocabulary by panels of tokens, so that
//   - tokens are the lanes: maximum and sum of the softmax need no shuffles;
//   - W and dW are read and written in place, only X is packed;
//   - a panel of probabilities is the packed operand of dX^T = W^T P as it is.
// Each logit is exponentiated once, against the maximum of its block; the
// correction exp(block maximum - logsumexp) is one factor per block and token.
// Tokens are padded to whole panels with zeros, which add nothing anywhere.
#include "compiler/backend/cpu/gemm/HeadWriter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kiln::cpu {

static void placeScratch(const HeadShape &shape, HeadPlan &plan) {
  int64_t end = 0;
  auto place = [&](int64_t &offset, int64_t size) {
    offset = end;
    end += llvm::alignTo(size, 16);
  };
  // In f32, of elements of 16 bits.
  auto placeNarrow = [&](int64_t &offset, int64_t size) {
    place(offset, llvm::divideCeil(size, 2));
  };
  bool usesDots = plan.dots.unit != DotUnit::none;
  int64_t chunkTokens = plan.chunkPanels * plan.lanes;
  if (usesDots)
    placeNarrow(plan.transposed, plan.panels * plan.dots.widthStride);
  else
    place(plan.transposed, plan.panels * shape.width * plan.lanes);
  place(plan.maxima, plan.blocks * chunkTokens);
  place(plan.factors, plan.blocks * chunkTokens);
  place(plan.labelLogits, chunkTokens);
  place(plan.hits, chunkTokens);
  place(plan.weights, chunkTokens);
  place(plan.losses, plan.panels);
  place(plan.counts, plan.panels);
  if (!shape.gradients) {
    // Logits alone.
  } else if (usesDots) {
    placeNarrow(plan.columns, plan.columnPanels * plan.dots.tokenStride);
    placeNarrow(plan.probabilities, plan.blocks * plan.dots.blockPanels *
                                        plan.dots.probabilityStride);
    place(plan.partials, plan.slices * chunkTokens * plan.dots.paddedWidth);
  } else {
    place(plan.columns,
          plan.columnPanels * plan.panels * plan.lanes * plan.lanes);
    place(plan.probabilities, plan.blocks * plan.blockRows * chunkTokens);
    place(plan.partials, plan.slices * chunkTokens * shape.width);
  }
  bool isRounded =
      shape.weightGradient && shape.weightGradient != shape.types.computed();
  plan.weightSums = -1;
  if (isRounded && plan.chunks > 1)
    place(plan.weightSums, shape.vocabulary * shape.width);
  plan.sharedSize = end;
  end = 0;
  if (usesDots) {
    // Rows of W lie first, in both orders, one after the other.
    int64_t rows;
    placeNarrow(rows, std::max(plan.dots.blockPanels * plan.dots.widthStride,
                               plan.columnPanels * plan.dots.rowStride));
    place(plan.dots.logits, plan.blockRows * plan.lanes);
    placeNarrow(plan.dots.transposed, plan.dots.rowStride);
    place(plan.dots.tile, kDotStepElements);
    plan.workerSize = end;
    return;
  }
  plan.workerSize = llvm::alignTo(plan.blockRows * plan.lanes, 16);
  if (shape.gradients) {
    plan.leftPanelStride = plan.blockRows * plan.tile.rows + 16;
    plan.workerSize = llvm::alignTo(
        llvm::divideCeil(shape.width, plan.tile.rows) * plan.leftPanelStride,
        16);
  }
}

static void planDots(const HeadShape &shape, HeadPlan &plan) {
  DotHeadPlan &dots = plan.dots;
  dots.blockPanels = plan.blockRows / kDotBlock;
  dots.widthStride = getPanelStride(shape.width);
  dots.tokenStride = getPanelStride(plan.panels * kDotBlock);
  dots.rowStride = getPanelStride(plan.blockRows);
  dots.probabilityStride = getPanelStride(plan.chunkPanels * kDotBlock);
  dots.paddedWidth = plan.columnPanels * kDotBlock;
}

HeadPlan makePlan(const HeadShape &shape, const CpuTarget &target,
                  const HeadTuning &tuning) {
  HeadPlan plan = {};
  int64_t bytes = shape.types.computedBytes();
  plan.dots.unit = findDotUnit(target, shape.types.operands);
  bool usesDots = plan.dots.unit != DotUnit::none;
  plan.tile = chooseTile(target);
  plan.lanes = plan.tile.vectors * target.lanes(bytes);
  if (usesDots) {
    plan.tile.rows = plan.lanes = kDotBlock;
    bytes = shape.types.operands.getIntOrFloatBitWidth() / 8;
  }
  plan.panels = llvm::divideCeil(shape.tokens, plan.lanes);
  plan.columnPanels = llvm::divideCeil(shape.width, plan.lanes);
  // More tokens at a time mean fewer passes over W and dW; probabilities leave
  // the caches anyway. Without gradients they are not kept.
  int64_t limit =
      shape.gradients ? std::max<int64_t>(1, 512 / plan.lanes) : plan.panels;
  plan.chunks = llvm::divideCeil(plan.panels, limit);
  plan.chunkPanels = llvm::divideCeil(plan.panels, plan.chunks);
  plan.chunks = llvm::divideCeil(plan.panels, plan.chunkPanels);
  // The rows of W of a block are read once per panel, from the second cache.
  int64_t rows = target.l2Bytes * 3 / 4 / (shape.width * bytes);
  rows = std::clamp<int64_t>(rows, 48, usesDots ? 384 : 192) / plan.tile.rows *
         plan.tile.rows;
  plan.blockRows =
      std::min(rows, int64_t(llvm::alignTo(shape.vocabulary, plan.tile.rows)));
  plan.blocks = llvm::divideCeil(shape.vocabulary, plan.blockRows);
  plan.sliceBlocks = llvm::divideCeil(plan.blocks, 16);
  plan.slices = llvm::divideCeil(plan.blocks, plan.sliceBlocks);
  int64_t subRows = target.l2Bytes * tuning.gradientCachePercent / 100 /
                    (plan.chunkPanels * plan.lanes * bytes);
  plan.subRows = std::clamp<int64_t>(subRows / plan.tile.rows * plan.tile.rows,
                                     plan.tile.rows, plan.blockRows);
  if (usesDots)
    planDots(shape, plan);
  placeScratch(shape, plan);
  return plan;
}

static StagePlan listStages(StringRef symbol, const HeadShape &shape,
                            const HeadPlan &plan) {
  StagePlan stages;
  auto add = [&](StringRef name, int64_t items, int64_t rounds) {
    stages.stages.push_back({(symbol + name).str(), items, rounds});
  };
  add("_pack", plan.panels, 1);
  add("_logits", plan.blocks, plan.chunks);
  add("_combine", plan.chunkPanels, plan.chunks);
  if (shape.gradients) {
    add("_gradients", plan.slices, plan.chunks);
    add("_reduce", plan.chunkPanels, plan.chunks);
  }
  add("_loss", 1, 1);
  int64_t bytes = shape.types.computedBytes();
  stages.sharedScratchBytes = plan.sharedSize * bytes;
  stages.scratchBytesPerWorker = plan.workerSize * bytes;
  return stages;
}

StagePlan HeadWriter::emit() {
  const ElementTypes &types = shape.types;
  auto flat = [&](int64_t size) -> Type {
    return MemRefType::get(size, types.computed());
  };
  int64_t xSize = shape.tokens * shape.width,
          wSize = shape.vocabulary * shape.width;
  buffers = {MemRefType::get(xSize, types.operands),
             MemRefType::get(wSize, types.operands),
             MemRefType::get(shape.tokens, builder.getI32Type()), flat(1),
             flat(1)};
  if (shape.gradients)
    buffers.append(
        {MemRefType::get(xSize, types.results),
         MemRefType::get(wSize, shape.weightGradient ? shape.weightGradient
                                                     : types.computed())});
  int64_t scratchSize = plan.sharedSize + plan.workerSize * kMaxWorkers;
  buffers.push_back(flat(scratchSize));
  if (usesDots())
    buffers.back() = MemRefType::get(scratchSize * int64_t(sizeof(float)),
                                     builder.getI8Type());

  StagePlan stages = listStages(symbol, shape, plan);
  const KernelStage *stage = stages.stages.data();
  define(*stage++, [&](Value panel, const Chunk &) { packTokens(panel); });
  define(*stage++,
         [&](Value block, const Chunk &chunk) { computeLogits(block, chunk); });
  auto definePerPanel = [&](Body body) {
    define(*stage++, body, /*hasItemPerPanel=*/true);
  };
  definePerPanel(
      [&](Value inChunk, const Chunk &chunk) { combine(inChunk, chunk); });
  if (shape.gradients) {
    define(*stage++, [&](Value slice, const Chunk &chunk) {
      computeGradients(slice, chunk);
    });
    definePerPanel([&](Value inChunk, const Chunk &chunk) {
      reduceInputGradient(inChunk, chunk);
    });
  }
  define(*stage++, [&](Value, const Chunk &) {
    sumPanels(plan.losses, loss);
    sumPanels(plan.counts, correct);
  });
  return stages;
}

// Items of one call are in one round, which is the number of the chunk. The
// last chunk may have fewer panels than a round has items.
void HeadWriter::define(const KernelStage &stage, Body body,
                        bool hasItemPerPanel) {
  func::FuncOp function = createStage(module, stage.symbol, buffers);
  markVectorised(function);
  Block &entry = function.front();
  builder.setInsertionPointToStart(&entry);
  write.enter(entry);
  x = entry.getArgument(0);
  w = entry.getArgument(1);
  labels = entry.getArgument(2);
  loss = entry.getArgument(3);
  correct = entry.getArgument(4);
  if (shape.gradients) {
    dx = entry.getArgument(5);
    dw = entry.getArgument(6);
  }
  scratch = entry.getArgument(buffers.size() - 1);
  if (usesDots()) {
    auto view = [&, bytes = scratch](Type element, int64_t size) {
      return memref::ViewOp::create(builder, write.loc,
                                    MemRefType::get(size, element), bytes,
                                    write.index(0), ValueRange());
    };
    int64_t size = cast<MemRefType>(scratch.getType()).getDimSize(0);
    panels = view(shape.types.operands, size / 2);
    scratch = view(shape.types.computed(), size / 4);
    dots.begin();
  }
  StageRange range = getRange(function);
  workerBase =
      write.add(write.mul(range.worker, plan.workerSize), plan.sharedSize);
  Value round = write.div(range.begin, stage.items);
  Value firstItem = write.mul(round, stage.items);
  Value firstPanel = write.mul(round, plan.chunkPanels);
  Chunk chunk{firstPanel,
              write.min(write.index(plan.chunkPanels),
                        write.sub(write.index(plan.panels), firstPanel))};
  Value end = write.sub(range.end, firstItem);
  if (hasItemPerPanel)
    end = write.min(end, chunk.count);
  write.loop(write.sub(range.begin, firstItem), end, 1,
             [&](Value item) { body(item, chunk); });
  if (usesDots())
    dots.end();
  func::ReturnOp::create(builder, write.loc);
}

Value HeadWriter::constant(double value, int64_t size) {
  return arith::ConstantOp::create(
      builder, write.loc,
      DenseElementsAttr::get(
          write.vectorType(size),
          builder.getFloatAttr(shape.types.computed(), value)));
}

Value HeadWriter::blockEnd(Value block) {
  return write.min(write.add(write.mul(block, plan.blockRows), plan.blockRows),
                   write.index(shape.vocabulary));
}

Value HeadWriter::probabilityPanel(Value block, Value inChunk) {
  Value number = write.add(write.mul(block, plan.chunkPanels), inChunk);
  return write.add(write.mul(number, plan.blockRows * plan.lanes),
                   plan.probabilities);
}

Value HeadWriter::statistics(int64_t part, Value block, Value inChunk) {
  Value number = write.add(write.mul(block, plan.chunkPanels), inChunk);
  return write.add(write.mul(number, plan.lanes), part);
}

// Whole tiles from `begin` to `end`, and the tail of `total` if `end` is there.
void HeadWriter::forEachTile(Value begin, Value end, int64_t total,
                             llvm::function_ref<void(Value, int64_t)> body) {
  int64_t tail = total % plan.tile.rows;
  Value wholeEnd = write.min(end, write.index(total - tail));
  write.loop(begin, wholeEnd, plan.tile.rows,
             [&](Value row) { body(row, plan.tile.rows); });
  if (tail != 0)
    write.branch(write.isBelow(wholeEnd, end), [&] { body(wholeEnd, tail); });
}

// Lanes of a panel that hold a token.
void HeadWriter::forEachToken(Value panel,
                              llvm::function_ref<void(Value, Value)> body) {
  Value first = write.mul(panel, plan.lanes);
  Value count = write.min(write.index(plan.lanes),
                          write.sub(write.index(shape.tokens), first));
  write.loop(write.index(0), count, 1, [&](Value lane) {
    Value label = memref::LoadOp::create(builder, write.loc, labels,
                                         write.add(first, lane));
    // A negative label becomes larger than any vocabulary.
    body(lane, arith::IndexCastOp::create(builder, write.loc,
                                          builder.getIndexType(), label));
  });
}

SmallVector<Value> HeadWriter::multiply(int64_t rows, int64_t columns,
                                        const ScalarOperand &left,
                                        const VectorOperand &right, Value depth,
                                        int64_t depthFactor) {
  int64_t vectors = llvm::divideCeil(columns, write.lanes);
  SmallVector<Value> zeros(rows * vectors, write.zeros(write.lanes));
  return emitTileProduct(write, rows, vectors, left, right, depth, depthFactor,
                         zeros);
}

void HeadWriter::prefetchTile(int64_t rows, int64_t columns, Value buffer,
                              Value place, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i)
    write.prefetchRow(buffer, write.add(place, i * stride), columns);
}

// With the elements at `addend`, if there is one, added to them.
void HeadWriter::storeTile(ArrayRef<Value> sums, int64_t rows, int64_t columns,
                           const Place &target, int64_t stride,
                           const Place &addend) {
  for (auto [number, sum] : llvm::enumerate(sums)) {
    int64_t vectors = sums.size() / rows;
    int64_t i = number / vectors, j = number % vectors * write.lanes;
    int64_t size = std::min(write.lanes, columns - j);
    int64_t offset = i * stride + j;
    Value values = write.firstLanes(sum, size);
    if (addend.buffer)
      values =
          addFloat(values, write.load(addend.buffer,
                                      write.add(addend.base, offset), size));
    write.store(values, target.buffer, write.add(target.base, offset));
  }
}

// X^T for the logits, and X for dW, of one panel of tokens.
void HeadWriter::packTokens(Value panel) {
  if (usesDots())
    return packTokenDots(panel);
  int64_t width = shape.width, lanes = plan.lanes;
  int64_t tail = shape.tokens % lanes;
  auto pack = [&](int64_t tokens) {
    Value from = write.mul(panel, lanes * width);
    Value to = write.add(write.mul(panel, width * lanes), plan.transposed);
    emitPackPanel(write, {x, from, 1, width}, write.index(width), width, tokens,
                  lanes, scratch, to);
    if (!shape.gradients)
      return;
    auto packColumns = [&](Value column, int64_t columns) {
      Value rows = write.add(write.add(write.mul(panel, lanes * lanes),
                                       write.mul(column, plan.panels * lanes)),
                             plan.columns);
      emitPackPanel(write, {x, write.add(from, column), width, 1},
                    write.index(tokens), tokens, columns, lanes, scratch, rows);
      write.loop(write.index(tokens * lanes), write.index(lanes * lanes), lanes,
                 [&](Value row) {
                   write.store(constant(0, lanes), scratch,
                               write.add(rows, row));
                 });
    };
    int64_t tailColumns = width % lanes;
    write.loop(write.index(0), write.index(width - tailColumns), lanes,
               [&](Value column) { packColumns(column, lanes); });
    if (tailColumns != 0)
      packColumns(write.index(width - tailColumns), tailColumns);
  };
  if (tail == 0)
    return pack(lanes);
  write.branch(
      write.isEqual(panel, write.index(plan.panels - 1)), [&] { pack(tail); },
      [&] { pack(lanes); });
}

void HeadWriter::computeLogits(Value block, const Chunk &chunk) {
  Value begin = write.mul(block, plan.blockRows);
  Value rows = write.sub(blockEnd(block), begin);
  if (usesDots())
    packRowDots(begin, rows);
  write.loop(write.index(0), chunk.count, 1, [&](Value inChunk) {
    Value panel = write.add(chunk.first, inChunk);
    if (usesDots()) {
      Value logits = write.add(workerBase, plan.dots.logits);
      computeLogitDots(panel, rows, logits);
      takeLabelLogits(block, panel, inChunk, logits);
      computePowerDots(block, inChunk, rows, logits);
      return;
    }
    Value logits =
        shape.gradients ? probabilityPanel(block, inChunk) : workerBase;
    computeTiles(block, panel, logits);
    takeLabelLogits(block, panel, inChunk, logits);
    findMaximumAndSum(
        block, inChunk, rows, logits, [&](Value row, Value power) {
          if (shape.gradients)
            write.store(power, scratch,
                        write.add(logits, write.mul(row, plan.lanes)));
        });
  });
}

// Of the logits of a block and a panel of tokens; `store` takes the powers.
void HeadWriter::findMaximumAndSum(
    Value block, Value inChunk, Value rows, Value logits,
    llvm::function_ref<void(Value row, Value power)> store) {
  auto load = [&](Value row) {
    return write.load(scratch, write.add(logits, write.mul(row, plan.lanes)),
                      plan.lanes);
  };
  Value maximum = write.fold(
      write.index(1), rows, 1, load(write.index(0)),
      [&](Value row, Value carried) { return maxFloat(load(row), carried); });
  Value sum = write.fold(write.index(0), rows, 1, constant(0, plan.lanes),
                         [&](Value row, Value carried) {
                           Value power =
                               exponential(subFloat(load(row), maximum));
                           store(row, power);
                           return addFloat(carried, power);
                         });
  write.store(maximum, scratch, statistics(plan.maxima, block, inChunk));
  write.store(sum, scratch, statistics(plan.factors, block, inChunk));
}

void HeadWriter::computeTiles(Value block, Value panel, Value logits) {
  Value begin = write.mul(block, plan.blockRows);
  VectorOperand right = {
      scratch,
      write.add(write.mul(panel, shape.width * plan.lanes), plan.transposed),
      plan.lanes};
  forEachTile(
      begin, blockEnd(block), shape.vocabulary, [&](Value row, int64_t rows) {
        ScalarOperand left = {w, write.mul(row, shape.width), shape.width, 1};
        Value place =
            write.add(logits, write.mul(write.sub(row, begin), plan.lanes));
        storeTile(multiply(rows, plan.lanes, left, right,
                           write.index(shape.width), shape.width),
                  rows, plan.lanes, {scratch, place}, plan.lanes);
      });
}

void HeadWriter::takeLabelLogits(Value block, Value panel, Value inChunk,
                                 Value logits) {
  Value begin = write.mul(block, plan.blockRows);
  Value rows = write.sub(blockEnd(block), begin);
  forEachToken(panel, [&](Value lane, Value label) {
    Value row = write.sub(label, begin);
    write.branch(write.isBelow(row, rows), [&] {
      Value from =
          write.add(write.add(logits, write.mul(row, plan.lanes)), lane);
      Value to = write.add(write.mul(inChunk, plan.lanes), plan.labelLogits);
      write.store(write.loadScalar(scratch, from), scratch,
                  write.add(to, lane));
    });
  });
}

// Turns the sums of the blocks into the factors that make their powers
// probabilities, and adds up loss and correct answers of the panel.
void HeadWriter::combine(Value inChunk, const Chunk &chunk) {
  Value zero = write.index(0), blocks = write.index(plan.blocks);
  auto load = [&](int64_t part, Value block) {
    return write.load(scratch, statistics(part, block, inChunk), plan.lanes);
  };
  Value maximum =
      write.fold(write.index(1), blocks, 1, load(plan.maxima, zero),
                 [&](Value block, Value carried) {
                   return maxFloat(load(plan.maxima, block), carried);
                 });
  Value sum = write.fold(
      zero, blocks, 1, constant(0, plan.lanes),
      [&](Value block, Value carried) {
        Value power = exponential(subFloat(load(plan.maxima, block), maximum));
        return addFloat(carried, mulFloat(load(plan.factors, block), power));
      });
  Value logSum =
      addFloat(maximum, math::LogOp::create(builder, write.loc, sum));

  Value panel = write.add(chunk.first, inChunk);
  Value logits = write.add(write.mul(inChunk, plan.lanes), plan.labelLogits);
  Value weights = write.add(write.mul(inChunk, plan.lanes), plan.weights);
  Value hits = write.add(write.mul(inChunk, plan.lanes), plan.hits);
  Value losses = write.add(panel, plan.losses);
  Value counts = write.add(panel, plan.counts);
  Value labelLogit = write.load(scratch, logits, plan.lanes);
  Value isCorrect = arith::CmpFOp::create(
      builder, write.loc, arith::CmpFPredicate::OGE, labelLogit, maximum);
  write.store(arith::SelectOp::create(builder, write.loc, isCorrect,
                                      constant(1, plan.lanes),
                                      constant(0, plan.lanes)),
              scratch, hits);
  write.store(subFloat(logSum, labelLogit), scratch, logits);
  write.store(constant(0, plan.lanes), scratch, weights);
  write.store(scalar(0), scratch, losses);
  write.store(scalar(0), scratch, counts);
  forEachToken(panel, [&](Value lane, Value label) {
    write.branch(write.isBelow(label, write.index(shape.vocabulary)), [&] {
      write.store(scalar(1), scratch, write.add(weights, lane));
      addToken(write.add(logits, lane), losses);
      addToken(write.add(hits, lane), counts);
    });
  });
  if (!shape.gradients)
    return;
  Value weight = write.load(scratch, weights, plan.lanes);
  write.loop(zero, blocks, 1, [&](Value block) {
    Value power = exponential(subFloat(load(plan.maxima, block), logSum));
    write.store(mulFloat(power, weight), scratch,
                statistics(plan.factors, block, inChunk));
  });
}

void HeadWriter::addToken(Value from, Value to) {
  Value sum =
      addFloat(write.loadScalar(scratch, to), write.loadScalar(scratch, from));
  write.store(sum, scratch, to);
}

void HeadWriter::sumPanels(int64_t part, Value target) {
  Value total = write.fold(
      write.index(0), write.index(plan.panels), 1, scalar(0),
      [&](Value panel, Value carried) {
        return addFloat(carried,
                        write.loadScalar(scratch, write.add(panel, part)));
      });
  write.store(total, target, write.index(0));
}

StagePlan planHead(StringRef symbol, const HeadShape &shape,
                   const CpuTarget &target, const HeadTuning &tuning) {
  return listStages(symbol, shape, makePlan(shape, target, tuning));
}

StagePlan emitHead(ModuleOp module, StringRef symbol, const HeadShape &shape,
                   const CpuTarget &target, const HeadTuning &tuning) {
  return HeadWriter(module, symbol, shape, target, tuning).emit();
}

} // namespace kiln::cpu
