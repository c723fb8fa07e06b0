// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FUSE_GROUPING_H
#define KILN_COMPILER_FUSE_GROUPING_H

#include "compiler/backend/Backend.h"
#include "compiler/fuse/AcyclicOrder.h"
#include "compiler/fuse/OpFacts.h"
#include "dialects/kiln/Kiln.h"

#include "llvm/ADT/BitVector.h"

#include <memory>
#include <unordered_map>

namespace kiln {

/// Ops that become one kernel, or one op that does not become a kernel.
struct OpGroup {
  unsigned index = 0;                       ///< In program order.
  llvm::SmallVector<mlir::Operation *> ops; ///< In program order; empty once
                                            ///< another group has taken them.
  bool isOpen = true;                       ///< Whether others may join.
  // Facts that hold for all its ops; some op has unusual rows.
  bool isScalar = false, isOnlyExpanding = false, hasUnusualRows = false;
  std::optional<llvm::ArrayRef<int64_t>> uniformShape;
  int64_t largest = 0; ///< Elements of its largest operand or result.
  unsigned last = 0;   ///< Position of its last op in the block.
  unsigned joins = 0;  ///< How often it has changed.
};

/// The ops of a block as groups that become kernels.
class Grouping {
public:
  Grouping(mlir::Block &block, const FusionLimits &limits, OpFactTable &facts);

  /// Joins ops with their readers, and readers of the same large value, until
  /// nothing changes.
  void fuseAll();
  /// Copies ops to their readers in other groups where these read all operands
  /// anyway: the square of a gradient, for its norm and for Adam.
  void copyToReaders();
  /// Groups in an order that respects their dependences.
  llvm::SmallVector<OpGroup *> getOrder();

private:
  using Groups = llvm::SmallVector<OpGroup *, 4>;

  Groups findReaders(OpGroup *group);
  bool joinReaders(mlir::Operation *op);
  bool joinSiblings(mlir::Value value);
  OpGroup *tryJoin(OpGroup *writer, OpGroup *reader);
  bool canJoin(OpGroup *writer, OpGroup *reader);
  bool canShareLoops(OpGroup *writer, OpGroup *reader);
  void markNeighbours(OpGroup *group);
  bool reads(OpGroup *reader, mlir::Value value);
  bool canCopy(mlir::Operation *op, OpGroup *reader);
  bool canLose(OpGroup *group, mlir::Operation *op);
  void copyTo(OpGroup *reader, mlir::Operation *op);
  llvm::SmallVector<mlir::Operation *>
  merge(llvm::ArrayRef<mlir::Operation *> some,
        llvm::ArrayRef<mlir::Operation *> others);
  llvm::SmallVector<Groups> findEdges(bool withVariables);
  bool diesIn(OpGroup *group, mlir::Value value);
  bool roundsLast(OpGroup *group);
  bool isEager(OpGroup *group);
  llvm::SmallVector<OpGroup *> sort(llvm::ArrayRef<Groups> edges);

  OpGroup *getGroup(mlir::Operation *op) const { return groupOf.lookup(op); }
  bool isFusing() const { return limits.operations > 1; }

  mlir::Block &block;
  FusionLimits limits;
  OpFactTable &facts;
  std::vector<std::unique_ptr<OpGroup>> groups;
  std::unique_ptr<AcyclicOrder> order;
  llvm::DenseMap<mlir::Operation *, OpGroup *> groupOf;
  llvm::DenseMap<mlir::Operation *, unsigned> positions;
  /// Collectives run in program order on every device, however each of them
  /// fuses the other ops.
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> nextCollective;

  /// Ops with unusual rows join others last, lest they keep them from each
  /// other.
  bool joinsUnusual = false;
  bool isFirstTry = false;                  ///< Of all ops.
  llvm::SetVector<OpGroup *> changedGroups; ///< During the first try.
  /// Ops, and values by their numbers, whose groups have changed since they
  /// were tried; nothing new can come of any other.
  llvm::BitVector changedOps, changedValues;
  llvm::SmallVector<mlir::Value> values; ///< Arguments, then results.
  llvm::DenseMap<mlir::Value, unsigned> valueNumbers;
  /// Whether lists of ops can share loops, by their hash: layers are alike.
  std::unordered_map<size_t, bool> sharing;
  /// Pairs of groups that could not join, with how often each had changed. As
  /// long as neither changes they cannot: the obstacle is in their ops, or a
  /// path between them through others, and joins of others keep paths.
  llvm::DenseSet<
      std::pair<std::pair<OpGroup *, unsigned>, std::pair<OpGroup *, unsigned>>>
      refused;
};

} // namespace kiln

#endif // KILN_COMPILER_FUSE_GROUPING_H
