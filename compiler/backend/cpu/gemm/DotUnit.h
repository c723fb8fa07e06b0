// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of elements of 16 bits by the instructions that multiply and add
// pairs of them in f32. Operands are packed into panels, which are the same for
// every such unit, so that kernels on top of it need not know which one it is.
#ifndef KILN_COMPILER_BACKEND_CPU_GEMM_DOTUNIT_H
#define KILN_COMPILER_BACKEND_CPU_GEMM_DOTUNIT_H

#include "compiler/backend/cpu/MicroKernel.h"

namespace kiln::cpu {

/// The unit that multiplies elements of this type on `target`.
DotUnit findDotUnit(const CpuTarget &target, mlir::Type operands);

/// Rows and columns of a block of products, and the step of depth. A panel is a
/// block wide; for each step of its depth, rounded up with zeros, it has
///   left:  element (i, k) at i * 32 + k
///   right: element (k, j) at j / 16 * 512 + k / 2 * 32 + j % 16 * 2 + k % 2
inline constexpr int64_t kDotBlock = 32;
inline constexpr int64_t kDotStepElements = kDotBlock * kDotBlock;

/// Elements from panel to panel of this depth.
inline int64_t getPanelStride(int64_t depth) {
  // Panels that all start in the same cache set would evict each other.
  return llvm::divideCeil(depth, kDotBlock) * kDotStepElements + kDotBlock;
}

/// Writes packing and products. `write` computes in f32; panels lie in buffers
/// of the elements' type, on cache lines.
class DotWriter {
public:
  DotWriter(TileWriter &write, DotUnit unit, bool isExpanded)
      : write(write), unit(unit), isExpanded(isExpanded) {}

  /// Around all products of a function.
  void begin();
  void end();

  /// Packs `across` rows of the left operand, or columns of the right one (at
  /// most a block), over `depth`. Element (k, i) lies at `source.base + k *
  /// depthStride + i * acrossStride`, one stride being 1.
  void packLeft(const PackSource &source, mlir::Value depth, mlir::Value across,
                mlir::Value panel, mlir::Value panelBase);
  /// The same for `panels` panels of the right operand, `panelStride` apart,
  /// which have `across` columns together.
  void packRight(const PackSource &source, mlir::Value depth,
                 mlir::Value across, mlir::Value panels, mlir::Value panel,
                 mlir::Value panelBase, int64_t panelStride);

  /// Writes a block of sums of products over `steps` steps of depth to `sums`
  /// (f32), whose rows are `rowStride` apart; adds them to what is there unless
  /// `isFirst`.
  struct Operand {
    mlir::Value buffer, base;
  };
  void multiply(const Operand &left, const Operand &right, mlir::Value steps,
                const Operand &sums, int64_t rowStride, mlir::Value isFirst);

private:
  /// A step of a panel: `from` in the source, `place` in the panel.
  struct Step {
    const PackSource &source;
    mlir::Value from, panel, place;
  };
  void packRest(const PackSource &source, mlir::Value depth, mlir::Value across,
                mlir::Value firstStep, bool isLeft, mlir::Value panel,
                mlir::Value panelBase);
  void copyLeft(const Step &step);
  void copyRight(const Step &step);
  void copyRightRow(const Step &step, mlir::Value pair);
  void storeTransposed(llvm::SmallVectorImpl<mlir::Value> &rows,
                       mlir::Value panel, mlir::Value place);
  mlir::Value load(mlir::Value buffer, mlir::Value place, int64_t size);
  mlir::Value interleave(mlir::Value even, mlir::Value odd, bool isUpperHalf);

  void multiplyTiles(const Operand &left, const Operand &right,
                     mlir::Value steps, const Operand &sums, int64_t rowStride,
                     mlir::Value isFirst);
  void multiplyRows(const Operand &left, const Operand &right,
                    mlir::Value steps, const Operand &sums, int64_t rowStride,
                    mlir::Value isFirst);
  mlir::Value dot(mlir::Value sum, mlir::Value left, mlir::Value right);
  mlir::Value loadPair(const Operand &left, mlir::Value place);
  mlir::Value getAddress(mlir::Value buffer, mlir::Value place);
  void callTile(llvm::StringRef name, llvm::ArrayRef<int64_t> tiles,
                mlir::ValueRange operands = {});

  TileWriter &write;
  DotUnit unit;
  bool isExpanded; ///< By f32 arithmetic, for processors without the unit.
};

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_GEMM_DOTUNIT_H
