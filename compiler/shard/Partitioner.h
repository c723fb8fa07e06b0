// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_SHARD_PARTITIONER_H
#define KILN_COMPILER_SHARD_PARTITIONER_H

#include "compiler/shard/CutCost.h"
#include "compiler/shard/FactorRule.h"
#include "compiler/shard/Resharder.h"

namespace kiln::shard {

/// The first axis of the mesh, over which the batch is cut.
inline constexpr unsigned kData = 0;

/// Whether an op can be applied to flattened shards: an equation names
/// dimensions, which these do not have.
inline bool isElementwiseOnFlat(mlir::Operation *op) {
  return isElementwise(op) && !op->hasAttr("equation");
}

/// Writes one device's program for ops on full tensors, op by op in program
/// order. Each op is cut along the factor that costs least (CutCost.h);
/// operands that have another sharding are resharded at the use. The batch `?`
/// is cut over `data` by giving each replica its share, so only sums over the
/// batch are affected.
class Partitioner {
public:
  struct Options {
    /// Norms and the residual stream are cut along the sequence over `tensor`.
    bool isSequenceParallel = true;
    /// Remarks on each op say which cuts there were and what each costs.
    bool isExplained = false;
    /// See Resharder.
    mlir::Type messages = nullptr;
  };

  Partitioner(mlir::OpBuilder builder, const Mesh &mesh, Options options);

  /// Declares the local shard of a full tensor.
  void define(mlir::Value full, mlir::Value local, const Sharding &sharding);
  /// Declares that the padding of its shards is zero.
  void markZeroPadding(mlir::Value full) {
    known.find(full)->second.hasZeroPadding = true;
  }
  /// Whether it is known to be zero.
  bool hasZeroPadding(mlir::Value full);
  /// Declares a value's preferred sharding.
  void prefer(mlir::Value full, const Sharding &sharding);
  /// Operands of linear elementwise ops inherit the preference of the result.
  void spreadPreferences(mlir::Block &block);

  mlir::LogicalResult visit(mlir::Operation *op);

  /// The sharding of a visited value. No axis is used twice.
  Sharding getSharding(mlir::Value full);
  /// The local shard under `wanted`, which may keep partial axes of the value.
  mlir::Value get(mlir::Value full, const Sharding &wanted);
  /// The full tensor, summed and gathered.
  mlir::Value getFull(mlir::Value full);
  Resharder &getResharder() { return resharder; }

private:
  /// When a resharded form was made: by op, and by stretch of ops of one layer.
  struct Moment {
    unsigned op = 0, stretch = 0;
  };
  struct Version {
    Sharding sharding;
    mlir::Value local;
    Moment made;
  };
  struct Known {
    Sharding sharding;
    mlir::Value local;                   // Null for a lazy value.
    llvm::SmallVector<Version> versions; // Resharded, or of a lazy value.
    bool hasZeroPadding = false;         // Also if there is no padding.
  };
  /// The factor along which an op is cut.
  struct Choice {
    unsigned factor;
    Cut cut;
  };
  /// A cut that an operand or a preferred result proposes.
  struct Candidate {
    Choice choice;
    CutCost cost;
    std::string proposer; // For remarks.
  };

  class ChosenPlace;

  bool isUniform(mlir::Value full);
  bool hasZeroPadding(mlir::Value full, unsigned dimension, const Cut &cut);
  bool keepsZeroPadding(mlir::Operation *op);
  bool isLazy(mlir::Value full);
  bool isLazyOp(mlir::Operation *op);
  Sharding inferLazy(mlir::Operation *op);
  llvm::SmallVector<Sharding> inferLazyOperands(const FactorRule &rule,
                                                const Sharding &wanted);
  mlir::Value materialise(mlir::Operation *op, const Sharding &wanted);
  mlir::Value getFirstIndex(int64_t size, const Cut &cut, mlir::Location loc);
  mlir::Value getFlatIndices(mlir::Operation *op, unsigned dimension,
                             const Sharding &wanted);
  mlir::Value getGlobalIndices(int64_t size, const Cut &cut,
                               mlir::Location loc);

  mlir::LogicalResult visitRead(ReadOp read);
  mlir::LogicalResult visitAssign(AssignOp assign);
  mlir::LogicalResult visitReshape(ReshapeOp op);
  mlir::LogicalResult visitDefer(DeferOp op);
  mlir::LogicalResult visitSlice(SliceOp op);
  mlir::LogicalResult visitConcatenate(ConcatenateOp op);
  mlir::LogicalResult visitFlat(mlir::Operation *op, const Sharding &flat);
  mlir::LogicalResult visitDecomposed(mlir::Operation *op,
                                      const FactorRule &rule);
  mlir::LogicalResult visitFactored(mlir::Operation *op,
                                    const FactorRule &rule);
  llvm::SmallVector<mlir::Value>
  cutOperands(mlir::Operation *op, const FactorRule &rule,
              const std::optional<Choice> &choice, llvm::ArrayRef<Axes> kept);
  llvm::SmallVector<Sharding> inferResults(mlir::Operation *op,
                                           const FactorRule &rule,
                                           const std::optional<Choice> &choice,
                                           llvm::ArrayRef<Axes> kept);
  mlir::LogicalResult dispatch(mlir::Operation *op);
  bool isCutWhereFull(mlir::Operation *op, const FactorRule &rule);

  std::optional<Choice> choose(mlir::Operation *op, const FactorRule &rule);
  llvm::SmallVector<Candidate> propose(mlir::Operation *op,
                                       const FactorRule &rule, bool isOfLazy);
  bool isPossible(mlir::Operation *op, const FactorRule &rule,
                  const Choice &choice, int64_t size);
  CutCost price(mlir::Operation *op, const FactorRule &rule,
                const Choice &choice);
  void addMovedBytes(mlir::Value full, const Sharding &wanted,
                     llvm::SmallDenseSet<mlir::Value> &priced, CutCost &cost);
  void explain(mlir::Operation *op, llvm::ArrayRef<Candidate> candidates,
               const Candidate *chosen);
  const Version *findVersion(const Known &entry, const Sharding &wanted) const;

  Sharding apply(const std::optional<Choice> &choice,
                 const FactorRule::Dims &dims);
  llvm::SmallVector<Axes> keepPartial(mlir::Operation *op,
                                      const std::optional<Choice> &choice);
  Sharding settled(mlir::RankedTensorType type, const Sharding &sharding);
  void settle(mlir::Value full, mlir::Value local, Sharding sharding);
  mlir::Value moveWidened(mlir::Value full, const Sharding &wanted);
  void keepUnrounded(mlir::Value local, const Sharding &sharding);

  mlir::OpBuilder builder;
  const Mesh &mesh;
  Options options;
  Resharder resharder;
  llvm::DenseMap<mlir::Value, Known> known;
  llvm::DenseMap<mlir::Value, Sharding> preferred;
  Moment now;
  mlir::Attribute layer;      // Of the op that was visited last.
  bool isDecomposing = false; // Decomposed ops count as one in `now`.
};

} // namespace kiln::shard

#endif // KILN_COMPILER_SHARD_PARTITIONER_H
