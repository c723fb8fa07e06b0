// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_HEADWRITER_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_HEADWRITER_H

#include "compiler/backend/cpu/gemm/DotUnit.h"
#include "compiler/backend/cpu/gemm/EmitHead.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace kiln::cpu {

/// Panels of a DotUnit, in elements of 16 bits, whose offsets are twice those
/// of f32. Products of 32 tokens and rows of W are their blocks.
struct DotHeadPlan {
  DotUnit unit;
  int64_t blockPanels;       ///< Of a block of the vocabulary.
  int64_t widthStride;       ///< From panel to panel of a depth of the width,
  int64_t tokenStride;       ///< of all tokens,
  int64_t rowStride;         ///< of a block of the vocabulary,
  int64_t probabilityStride; ///< and of a chunk of tokens.
  int64_t paddedWidth;       ///< Of a row of sums of dX, [slice][token][width].
  int64_t logits; ///< Of a worker, as is the transposed panel of probabilities.
  int64_t transposed, tile;
};

/// Sizes of blocks, and offsets into the shared scratch (in elements). A panel
/// is `lanes` tokens wide, `lanes` being several registers.
struct HeadPlan {
  TileShape tile;
  int64_t lanes;
  int64_t panels;      ///< Of all tokens.
  int64_t chunkPanels; ///< Of the tokens whose probabilities exist at a time.
  int64_t chunks;
  int64_t blockRows, blocks; ///< Of the vocabulary.
  int64_t subRows; ///< Rows of dW computed together, whose P stays in cache.
  int64_t slices, sliceBlocks; ///< Slices have separate sums of dX.
  int64_t columnPanels;        ///< Of X as the right operand of dW.
  // X^T as [panel][width][lanes]; X as [column panel][token][lanes];
  // maxima and factors as [block][token]; probabilities as
  // [block][panel][row][lanes]; dX^T as [slice][panel][width][lanes].
  int64_t transposed, columns, maxima, factors, labelLogits, hits, weights;
  int64_t losses, counts; ///< By panel.
  int64_t probabilities, partials;
  int64_t weightSums; ///< Of dW that is rounded after the last of several
                      ///< chunks, as dW is; else -1.
  int64_t sharedSize, workerSize;
  int64_t leftPanelStride; ///< Of W^T packed per worker.
  DotHeadPlan dots;
};

HeadPlan makePlan(const HeadShape &shape, const CpuTarget &target,
                  const HeadTuning &tuning);

/// The panels of tokens that a stage works on.
struct Chunk {
  mlir::Value first, count;
};

/// Writes the stages. Those that work on a chunk are a loop, a round per chunk.
class HeadWriter {
public:
  HeadWriter(mlir::ModuleOp module, llvm::StringRef symbol,
             const HeadShape &shape, const CpuTarget &target,
             const HeadTuning &tuning)
      : module(module), symbol(symbol), shape(shape),
        plan(makePlan(shape, target, tuning)), builder(module.getContext()),
        write(builder, module.getLoc(), shape.types.computed(), target),
        dots(write, plan.dots.unit, target.expandsDots) {}

  StagePlan emit();

private:
  using Place = DotWriter::Operand; // The buffer is null if there is none.
  using Body = llvm::function_ref<void(mlir::Value item, const Chunk &)>;
  void define(const KernelStage &stage, Body body,
              bool hasItemPerPanel = false);

  void packTokens(mlir::Value panel);
  void computeLogits(mlir::Value block, const Chunk &chunk);
  void computeTiles(mlir::Value block, mlir::Value panel, mlir::Value logits);
  void takeLabelLogits(mlir::Value block, mlir::Value panel,
                       mlir::Value inChunk, mlir::Value logits);
  void combine(mlir::Value inChunk, const Chunk &chunk);
  void addToken(mlir::Value from, mlir::Value to);
  void sumPanels(int64_t part, mlir::Value target);
  void computeGradients(mlir::Value slice, const Chunk &chunk);
  void packWeights(mlir::Value block);
  void scaleProbabilities(mlir::Value block, mlir::Value inChunk,
                          const Chunk &chunk);
  void accumulateInputGradient(mlir::Value block, mlir::Value slice,
                               mlir::Value inChunk);
  void computeWeightGradient(mlir::Value block, const Chunk &chunk);
  void reduceInputGradient(mlir::Value inChunk, const Chunk &chunk);

  // The same with a DotUnit, see EmitHeadDots.cpp.
  bool usesDots() const { return plan.dots.unit != DotUnit::none; }
  void packTokenDots(mlir::Value panel);
  void packRowDots(mlir::Value begin, mlir::Value rows);
  void computeLogitDots(mlir::Value panel, mlir::Value rows,
                        mlir::Value logits);
  void computePowerDots(mlir::Value block, mlir::Value inChunk,
                        mlir::Value rows, mlir::Value logits);
  void computeGradientDots(mlir::Value block, mlir::Value slice,
                           const Chunk &chunk);
  void scaleProbabilityDots(mlir::Value block, mlir::Value inChunk,
                            const Chunk &chunk);
  void accumulateInputDots(mlir::Value block, mlir::Value slice,
                           mlir::Value inChunk, mlir::Value panels);
  void computeWeightDots(mlir::Value block, const Chunk &chunk);
  void storeWeightRows(mlir::Value rows, int64_t columns, const Place &target,
                       const Place &addend);
  void reduceInputDots(mlir::Value inChunk, const Chunk &chunk);
  mlir::Value probabilityDots(mlir::Value block, mlir::Value row,
                              mlir::Value inChunk);
  mlir::Value countPanels(mlir::Value size) {
    return write.div(write.add(size, kDotBlock - 1), kDotBlock);
  }
  mlir::Value limit(mlir::Value size) {
    return write.min(size, write.index(kDotBlock));
  }
  mlir::Value yes() {
    return mlir::arith::ConstantIntOp::create(builder, write.loc, 1, 1);
  }
  void findMaximumAndSum(
      mlir::Value block, mlir::Value inChunk, mlir::Value rows,
      mlir::Value logits,
      llvm::function_ref<void(mlir::Value row, mlir::Value power)> store);

  void forEachToken(
      mlir::Value panel,
      llvm::function_ref<void(mlir::Value lane, mlir::Value label)> body);
  void forEachTile(mlir::Value begin, mlir::Value end, int64_t total,
                   llvm::function_ref<void(mlir::Value, int64_t)> body);
  llvm::SmallVector<mlir::Value>
  multiply(int64_t rows, int64_t columns, const ScalarOperand &left,
           const VectorOperand &right, mlir::Value depth, int64_t depthFactor);
  void prefetchTile(int64_t rows, int64_t columns, mlir::Value buffer,
                    mlir::Value place, int64_t stride);
  void storeTile(llvm::ArrayRef<mlir::Value> sums, int64_t rows,
                 int64_t columns, const Place &target, int64_t stride,
                 const Place &addend = {});
  void storeWeights(
      const Chunk &chunk, mlir::Value place,
      llvm::function_ref<void(const Place &target, const Place &)> store);
  mlir::Value blockEnd(mlir::Value block);
  mlir::Value probabilityPanel(mlir::Value block, mlir::Value inChunk);
  mlir::Value statistics(int64_t part, mlir::Value block, mlir::Value inChunk);
  mlir::Value constant(double value, int64_t size);
  mlir::Value scalar(double value) {
    return mlir::arith::ConstantOp::create(
        builder, write.loc,
        builder.getFloatAttr(shape.types.computed(), value));
  }
  mlir::Value exponential(mlir::Value value) {
    return mlir::math::ExpOp::create(builder, write.loc, value);
  }
  mlir::Value addFloat(mlir::Value left, mlir::Value right) {
    return mlir::arith::AddFOp::create(builder, write.loc, left, right);
  }
  mlir::Value subFloat(mlir::Value left, mlir::Value right) {
    return mlir::arith::SubFOp::create(builder, write.loc, left, right);
  }
  mlir::Value mulFloat(mlir::Value left, mlir::Value right) {
    return mlir::arith::MulFOp::create(builder, write.loc, left, right);
  }
  mlir::Value maxFloat(mlir::Value left, mlir::Value right) {
    mlir::Value isGreater = mlir::arith::CmpFOp::create(
        builder, write.loc, mlir::arith::CmpFPredicate::OGT, left, right);
    return mlir::arith::SelectOp::create(builder, write.loc, isGreater, left,
                                         right);
  }

  mlir::ModuleOp module;
  llvm::StringRef symbol;
  const HeadShape &shape;
  HeadPlan plan;
  mlir::OpBuilder builder;
  TileWriter write;
  DotWriter dots;
  llvm::SmallVector<mlir::Type> buffers;
  // The arguments of the function being written. `panels` are the bytes of
  // `scratch` as elements of 16 bits.
  mlir::Value x, w, labels, loss, correct, dx, dw, scratch, panels, workerBase;
};

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_HEADWRITER_H
