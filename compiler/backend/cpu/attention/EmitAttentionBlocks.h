// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTIONBLOCKS_H
#define KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTIONBLOCKS_H

#include "compiler/backend/cpu/attention/EmitAttention.h"
#include "compiler/backend/cpu/attention/EmitAttentionVectors.h"

namespace kiln::cpu {

/// Sizes of tiles and of the matrices in scratch. Those matrices are padded to
/// whole tiles, so that tiles need no tails; only accesses to the kernel's
/// buffers have the exact sizes.
struct AttentionLayout {
  /// The scores of a block, `strips` matrices of at most `mostRows` rows, may
  /// take `cacheBytes`.
  AttentionLayout(const AttentionShape &shape, const CpuTarget &target,
                  int64_t strips, int64_t mostRows, int64_t cacheBytes);

  int64_t lanes;
  int64_t rowTile;      ///< Rows of a register tile.
  int64_t scoreVectors; ///< Vectors in a row of a tile of scores.
  int64_t widthVectors; ///< The same where columns are those of a head.
  int64_t panelColumns; ///< Keys in a panel of transposed keys.
  int64_t panelRows;    ///< Head width, rounded to whole vectors.
  int64_t panels;
  int64_t widthTile, widthTiles;
  int64_t widthStride; ///< Between rows of a matrix of head width.
  int64_t blockRows;   ///< Queries whose scores exist at a time.
  int64_t blocks;
  int64_t scoreStride; ///< Between rows of scores.
  int64_t keyRows;     ///< Sequence, rounded to whole tiles.
};

/// Allocates ranges of one worker's scratch, each on its own cache lines.
class ScratchPlan {
public:
  ScratchPlan(int64_t elementBytes) : lineElements(64 / elementBytes) {}
  int64_t take(int64_t elements);
  int64_t getElements() const { return used; }

private:
  int64_t lineElements;
  int64_t used = 0;
};

/// A block of queries, and the keys they are multiplied with.
struct QueryBlock {
  mlir::Value first, rows, tiles; ///< `tiles` covers `rows`.
  mlir::Value keyBegin, keyEnd;
};

/// The steps that attention and its gradient share. Each step is a function of
/// its own, whose name begins with the symbol of the kernel.
class AttentionBlocks {
public:
  AttentionBlocks(VectorBuilder &code, llvm::StringRef symbol,
                  const AttentionShape &shape, const AttentionLayout &layout)
      : code(code), symbol(symbol), shape(shape), layout(layout) {}

  QueryBlock getBlock(mlir::Value number, mlir::Value keyBegin,
                      mlir::Value keyEnd);

  /// Emits a step as a function. The body sees its arguments only.
  using StepBody =
      llvm::function_ref<void(const QueryBlock &, llvm::ArrayRef<Place>)>;
  void callStep(llvm::StringRef name, const QueryBlock &block,
                llvm::ArrayRef<Place> places, StepBody body);

  /// Copies rows [first, first + count) times `factor`. Rows past the
  /// sequence repeat its last one, so padding holds ordinary numbers.
  void packRows(Place source, int64_t sourceStride, Place target,
                mlir::Value first, mlir::Value count, double factor);
  /// Writes all rows times `factor`, transposed, as panels of `panelColumns`.
  void packTransposed(Place source, int64_t sourceStride, Place target,
                      double factor);
  /// Writes `rows` rows of the exact width.
  void writeRows(Place source, Place target, int64_t targetStride,
                 mlir::Value rows);

  /// scores = left * panels, for the tiles that hold a visible key.
  void multiplyPanels(const QueryBlock &block, Place left, Place panels,
                      Place scores);
  /// target[query, width] = scores * right, over the visible keys.
  void multiplyScores(const QueryBlock &block, Place scores, Place right,
                      Place target);
  /// target[key, width] += scores^T * right, over the rows of the block.
  void multiplyScoresTransposed(const QueryBlock &block, Place scores,
                                Place right, Place target);

  /// One past the last key that the row sees.
  mlir::Value getVisible(const QueryBlock &block, mlir::Value row);
  /// End of the columns that the products read in a row of scores. Rows of one
  /// tile share it, so scores past the visible keys must be zero up to here.
  mlir::Value getRead(const QueryBlock &block, mlir::Value row);
  /// Runs `body(column, mask)` over the visible keys of a row, the mask null
  /// where all lanes are visible, then zeroes `targets` up to `getRead`.
  using RowBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::Value, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> forVisible(const QueryBlock &block,
                                            mlir::Value row,
                                            mlir::ValueRange carried,
                                            RowBody body);
  void clearHidden(const QueryBlock &block, mlir::Value row,
                   llvm::ArrayRef<Place> targets);

private:
  mlir::Value getKeyLimit(const QueryBlock &block);
  void emitTransposed(Place source, int64_t sourceStride, Place target,
                      mlir::Value factor);
  void emitPanels(const QueryBlock &block, Place left, Place panels,
                  Place scores);
  void emitScores(const QueryBlock &block, Place scores, Place right,
                  Place target);
  void emitScoresTransposed(const QueryBlock &block, Place scores, Place right,
                            Place target);

  VectorBuilder &code;
  std::string symbol;
  const AttentionShape &shape;
  const AttentionLayout &layout;
};

/// A flat buffer.
struct FlatBuffer {
  int64_t size;
  mlir::Type element;
};

/// Creates a stage over `flat` buffers; lengths, if the shape has them, come as
/// argument `lengthsAt`.
mlir::func::FuncOp createFlatStage(mlir::ModuleOp module,
                                   llvm::StringRef symbol,
                                   const AttentionShape &shape,
                                   llvm::ArrayRef<FlatBuffer> flat,
                                   unsigned lengthsAt);

/// How many positions a sample has.
mlir::Value loadLength(VectorBuilder &code, const AttentionShape &shape,
                       mlir::func::FuncOp stage, unsigned lengthsAt,
                       mlir::Value sample);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ATTENTION_EMITATTENTIONBLOCKS_H
