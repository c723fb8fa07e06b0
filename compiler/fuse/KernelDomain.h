// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FUSE_KERNELDOMAIN_H
#define KILN_COMPILER_FUSE_KERNELDOMAIN_H

#include "dialects/kiln/Kiln.h"

#include <optional>

namespace kiln {

/// How the ops of one kernel share loops. The loop dimensions [split, n) form a
/// row, which is walked by vectors; the dimensions [0, split) number the rows.
/// Every value has all dimensions of the row or none:
///   - a *row value* (none) is one scalar per row;
///   - a *point value* (all) is one element per point of the row.
/// A reduction over the row gives a row value, which the same kernel may use in
/// a later pass over the row. A reduction over rows leaves the kernel: it
/// is complete only when every row has been seen. It may keep leading
/// dimensions; rows that differ in the others only then make a *group*.
/// Operands of reductions have every dimension that numbers rows, so that each
/// element is reduced once. Other values may lack some; rows that differ only
/// in those then compute the same.
class KernelDomain {
public:
  /// Empty if the ops cannot share one nest of loops.
  static std::optional<KernelDomain>
  analyse(llvm::ArrayRef<mlir::Operation *> ops);

  llvm::ArrayRef<int64_t> getSizes() const { return sizes; }
  unsigned getSplit() const { return split; }
  int64_t getRows() const;
  /// Groups of rows that reductions over rows keep apart; 1 if there are none.
  int64_t getGroups() const;
  int64_t getColumns() const;

  /// Whether the only row is reduced and so long that workers share it: each
  /// pass is done by chunks of columns before the next one begins, and what it
  /// reduces is combined in the order of the chunks. Follows from the shape
  /// alone, because it is an order of summation.
  bool isLongRow() const { return hasLongRow; }
  /// Columns of a chunk, a multiple of every width of vectors.
  int64_t getColumnsPerChunk() const;

  /// Loop dimensions of `value`, in order. Only values of the kernel that are
  /// not tables.
  llvm::ArrayRef<unsigned> getDims(mlir::Value value) const {
    return dims.find(value)->second;
  }
  bool contains(mlir::Value value) const { return dims.contains(value); }
  bool isPoint(mlir::Value value) const;
  /// Whether each row has elements of its own of `value`.
  bool differsByRow(mlir::Value value) const {
    return differsByRow(value, split);
  }
  bool isRowReduction(mlir::Operation *op) const;
  bool isOuterReduction(mlir::Operation *op) const;

  /// The pass over the row in which `value` can first be computed.
  unsigned getPass(mlir::Value value) const { return passes.lookup(value); }
  unsigned getPassCount() const;

private:
  bool assignDims(llvm::ArrayRef<mlir::Operation *> ops);
  bool orderDims(llvm::ArrayRef<mlir::Operation *> ops);
  bool chooseSplit(llvm::ArrayRef<mlir::Operation *> ops);
  bool isValidSplit(unsigned candidate,
                    llvm::ArrayRef<mlir::Operation *> ops) const;
  std::optional<unsigned>
  findGroupDims(unsigned candidate,
                llvm::ArrayRef<mlir::Operation *> ops) const;
  bool differsByRow(mlir::Value value, unsigned candidate) const;
  bool losesRows(mlir::Operation *op, unsigned candidate) const;
  bool hasOuterConflict(llvm::ArrayRef<mlir::Operation *> ops) const;
  bool findLongRow(llvm::ArrayRef<mlir::Operation *> ops) const;
  bool hasPartialsOfTwoTypes(llvm::ArrayRef<mlir::Operation *> ops) const;
  void assignPasses(llvm::ArrayRef<mlir::Operation *> ops);

  llvm::SmallVector<int64_t> sizes;
  unsigned split = 0;
  bool hasLongRow = false;
  unsigned groupDims = 0; ///< The first dimensions, which number the groups.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<unsigned>> dims;
  llvm::DenseMap<mlir::Value, unsigned> passes;
};

/// Whether `op` can be part of a kernel with others.
bool isFusable(mlir::Operation *op);

/// Whether `op` becomes a kernel or part of one. Any other costs nothing, is a
/// command of its own or ties the block to the world outside.
bool needsKernel(mlir::Operation *op);

} // namespace kiln

#endif // KILN_COMPILER_FUSE_KERNELDOMAIN_H
