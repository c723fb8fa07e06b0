// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_MICROKERNEL_H
#define KILN_COMPILER_BACKEND_CPU_MICROKERNEL_H

#include "compiler/backend/cpu/CpuTarget.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include "llvm/ADT/DenseMap.h"

namespace kiln::cpu {

/// Writes index arithmetic, loops and vector code at one insertion point. The
/// building blocks of contraction kernels are members, so that an emitter reads
/// as the loop nest it produces.
class TileWriter {
public:
  TileWriter(mlir::OpBuilder &builder, mlir::Location loc,
             mlir::Type elementType, const CpuTarget &target);

  /// Code from here on is in the function with this entry block, where its
  /// constants are kept, one of each.
  void enter(mlir::Block &entry);

  mlir::Value index(int64_t value);
  mlir::Value add(mlir::Value left, mlir::Value right);
  mlir::Value add(mlir::Value left, int64_t right);
  mlir::Value sub(mlir::Value left, mlir::Value right);
  mlir::Value mul(mlir::Value left, int64_t right);
  mlir::Value div(mlir::Value left, int64_t right);
  mlir::Value rem(mlir::Value left, int64_t right);
  mlir::Value min(mlir::Value left, mlir::Value right);
  mlir::Value max(mlir::Value left, mlir::Value right);
  mlir::Value isEqual(mlir::Value left, mlir::Value right);
  mlir::Value isBelow(mlir::Value left, mlir::Value right);
  void loop(mlir::Value begin, mlir::Value end, int64_t step,
            llvm::function_ref<void(mlir::Value)> body);
  /// A loop that carries one value, and its last value.
  mlir::Value
  fold(mlir::Value begin, mlir::Value end, int64_t step, mlir::Value initial,
       llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> body);
  /// A condition known at compile time decides which branch is written.
  void branch(mlir::Value condition, llvm::function_ref<void()> then,
              llvm::function_ref<void()> otherwise = nullptr);

  // Loads and stores convert between the type in which the code computes and
  // that of the buffer.
  mlir::VectorType vectorType(int64_t size) const;
  mlir::Value zeros(int64_t size);
  mlir::Value load(mlir::Value buffer, mlir::Value place, int64_t size);
  /// Reads `size` elements and fills the register up with zeros: the tail of a
  /// row is read exactly, never past its end.
  mlir::Value loadPadded(mlir::Value buffer, mlir::Value place, int64_t size);
  mlir::Value loadScalar(mlir::Value buffer, mlir::Value place);
  void store(mlir::Value value, mlir::Value buffer, mlir::Value place);
  /// Asks for the lines of `size` elements, to be written.
  void prefetchRow(mlir::Value buffer, mlir::Value place, int64_t size);
  /// The first `size` lanes of a register.
  mlir::Value firstLanes(mlir::Value vector, int64_t size);
  /// Transposes `lanes` registers of `lanes` elements.
  void transpose(llvm::SmallVectorImpl<mlir::Value> &rows);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Type elementType; ///< In which the code computes: f32 or f64.
  int64_t lanes;          ///< Elements of one register.

private:
  void prefetch(mlir::Value buffer, mlir::Value place);

  mlir::Block *entry = nullptr;
  llvm::DenseMap<int64_t, mlir::Value> indices;
};

/// A table of constants that the code indexes, because there are too many for
/// branches. `symbol` is new in the module.
mlir::Value emitTable(TileWriter &write, mlir::ModuleOp module,
                      llvm::StringRef symbol, llvm::ArrayRef<int64_t> values);
/// Entry `place` of a table.
mlir::Value readTable(TileWriter &write, mlir::Value table, mlir::Value place);

/// Element (i, k) of the operand that is read by scalars lies at
/// `base + i * rowStride + k * depthStride`. If `depthBlock` is not 0, k counts
/// within blocks of that many, which lie `blockStride` apart. If `rows` is not
/// empty, row i lies at `rows[i]` instead of `i * rowStride`.
struct ScalarOperand {
  mlir::Value buffer, base;
  int64_t rowStride, depthStride;
  int64_t depthBlock = 0, blockStride = 0;
  llvm::ArrayRef<mlir::Value> rows = {};
};

/// Element (k, j) of the operand that is read by registers lies at
/// `base + k * depthStride + j`.
struct VectorOperand {
  mlir::Value buffer, base;
  int64_t depthStride;
};

/// Adds the product over `depth` to `accumulators`, which hold `rows` rows of
/// `vectors` registers each. `depthFactor` divides `depth`, as does the block
/// of depth if there is one. The order of additions is that of k.
llvm::SmallVector<mlir::Value>
emitTileProduct(TileWriter &write, int64_t rows, int64_t vectors,
                const ScalarOperand &left, const VectorOperand &right,
                mlir::Value depth, int64_t depthFactor,
                llvm::ArrayRef<mlir::Value> accumulators);

/// Position and size of a block of a matrix: element (k, j) is at `base + k *
/// depthStride + j * acrossStride`, one stride being 1.
struct PackSource {
  mlir::Value buffer, base;
  int64_t depthStride, acrossStride;
};

/// Copies `depth` by `columns` elements to a panel with rows of `width`
/// elements (a multiple of the lanes), the rest of each row zero.
void emitPackPanel(TileWriter &write, const PackSource &source,
                   mlir::Value depth, int64_t depthFactor, int64_t columns,
                   int64_t width, mlir::Value panel, mlir::Value panelBase);

/// The register tile that keeps both multipliers of `target` busy.
struct TileShape {
  int64_t rows, vectors;
};
TileShape chooseTile(const CpuTarget &target);

/// How much longer equal items take than a perfect split among workers, for
/// the numbers of workers that are likely.
double estimateImbalance(int64_t items);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_MICROKERNEL_H
