// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FUSE_ROWACCESS_H
#define KILN_COMPILER_FUSE_ROWACCESS_H

#include "compiler/fuse/KernelDomain.h"

namespace kiln {

/// Loads, reductions, reloads and stores of a kernel in each pass over a row.
/// In-place placement relies on them, and emitters write exactly these.
class RowAccess {
public:
  struct Pass {
    llvm::SmallVector<mlir::Value> rowValues; ///< Known when the pass begins.
    /// Along the row: results of the kernel's own passes, and reductions over
    /// rows that keep nothing of the row, which are reduced along it first.
    llvm::SmallVector<mlir::Operation *> reductions;
    llvm::SmallVector<mlir::Operation *> columnSums; ///< Over rows, by column.
    /// Outputs of one element per point, which no other row has.
    llvm::SmallVector<unsigned> stores;

    bool walksRow() const {
      return !reductions.empty() || !columnSums.empty() || !stores.empty();
    }
  };

  RowAccess(mlir::Block &body, const KernelDomain &domain);

  llvm::ArrayRef<Pass> getPasses() const { return passes; }
  /// When the row is done: outputs of one element per row, and reductions over
  /// rows of such values.
  llvm::ArrayRef<unsigned> getRowStores() const { return rowStores; }
  /// Outputs that several rows compute alike, of one element per point or per
  /// row: the first of these rows stores them when it is done, so that no two
  /// workers write the same place.
  llvm::ArrayRef<unsigned> getSharedStores() const { return sharedStores; }
  llvm::ArrayRef<mlir::Operation *> getRowSums() const { return rowSums; }
  /// All reductions over rows.
  llvm::ArrayRef<mlir::Operation *> getOuter() const { return outer; }

  /// Whether `pass` loads a point value that an earlier one of the same row has
  /// stored instead of computing it again.
  bool isReadBack(mlir::Value value, unsigned pass) const {
    return outputs.contains(value) && domain.getPass(value) < pass &&
           domain.differsByRow(value);
  }
  /// The output that holds a stored value.
  unsigned getOutput(mlir::Value value) const { return outputs.lookup(value); }
  /// The last pass that loads the input; 0 if none does.
  unsigned getLastRead(mlir::Value input) const {
    return lastReads.lookup(input);
  }

private:
  void addOp(mlir::Operation *op);
  void addOutput(mlir::Value output, unsigned position);
  void findReads(mlir::Value value, unsigned pass);

  const KernelDomain &domain;
  llvm::SmallVector<Pass> passes;
  llvm::SmallVector<unsigned> rowStores, sharedStores;
  llvm::SmallVector<mlir::Operation *> rowSums, outer;
  llvm::DenseMap<mlir::Value, unsigned> outputs, lastReads;
  llvm::DenseSet<std::pair<mlir::Value, unsigned>> seen;
};

} // namespace kiln

#endif // KILN_COMPILER_FUSE_ROWACCESS_H
