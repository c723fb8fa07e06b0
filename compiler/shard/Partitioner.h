// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_SHARD_PARTITIONER_H
#define KILN_COMPILER_SHARD_PARTITIONER_H

#include "compiler/shard/FactorRule.h"
#include "compiler/shard/Resharder.h"

namespace kiln::shard {

/// The first axis of the mesh, over which the batch is cut.
inline constexpr unsigned kData = 0;

/// Whether an op can be applied to runs of elements: an equation names
/// dimensions, which a run does not have.
inline bool isElementwiseOnRuns(mlir::Operation *op) {
  return isElementwise(op) && !op->hasAttr("equation");
}

/// Writes one device's program for ops on whole tensors, op by op in their
/// order. Each op is cut along the factor that asks for the least to be moved;
/// what does not fit is resharded where it is used. The batch `?` is cut over
/// `data` by giving each replica its share, so only sums over it show.
class Partitioner {
public:
  struct Options {
    /// Norms and the residual stream are cut along the sequence over `tensor`.
    bool isSequenceParallel = true;
  };

  Partitioner(mlir::OpBuilder builder, const Mesh &mesh, Options options);

  /// Says what a device has of a whole value.
  void define(mlir::Value whole, mlir::Value local, const Sharding &sharding);
  /// Says that what a device has past the end of the whole is zero.
  void markZeroPadding(mlir::Value whole) {
    known.find(whole)->second.hasZeroPadding = true;
  }
  /// Whether it is known to be.
  bool hasZeroPadding(mlir::Value whole);
  /// Says how a value would best lie.
  void wish(mlir::Value whole, const Sharding &sharding);
  /// Wishes of what ops read, from those of what they make.
  void spreadWishes(mlir::Block &block);

  mlir::LogicalResult visit(mlir::Operation *op);

  /// How a visited value lies. No axis does two things.
  Sharding getSharding(mlir::Value whole);
  /// What a device has of it under `wanted`, which may keep partial axes of
  /// its own.
  mlir::Value get(mlir::Value whole, const Sharding &wanted);
  /// The same with nothing cut and nothing partial.
  mlir::Value getWhole(mlir::Value whole);
  Resharder &getResharder() { return resharder; }

private:
  /// A form of a value and when it was made.
  struct Version {
    Sharding sharding;
    mlir::Value local;
    unsigned time;
  };
  struct Known {
    Sharding sharding;
    mlir::Value local;                   // Null for a lazy value.
    llvm::SmallVector<Version> versions; // Resharded, or of a lazy value.
    bool hasZeroPadding = false; // As far as it is known; without any, too.
  };
  /// The factor along which an op is cut.
  struct Choice {
    unsigned factor;
    Cut cut;
  };

  class ChosenPlace;

  bool isUniform(mlir::Value whole);
  bool hasZeroPadding(mlir::Value whole, unsigned dimension, const Cut &cut);
  bool keepsZeroPadding(mlir::Operation *op);
  bool isLazy(mlir::Value whole);
  bool isLazyOp(mlir::Operation *op);
  Sharding inferLazy(mlir::Operation *op);
  mlir::Value materialise(mlir::Operation *op, const Sharding &wanted);
  mlir::Value numberFirst(int64_t size, const Cut &cut, mlir::Location loc);
  mlir::Value numberElements(int64_t size, const Cut &cut, mlir::Location loc);

  mlir::LogicalResult visitRead(ReadOp read);
  mlir::LogicalResult visitAssign(AssignOp assign);
  mlir::LogicalResult visitReshape(ReshapeOp op);
  mlir::LogicalResult visitDefer(DeferOp op);
  mlir::LogicalResult visitSlice(SliceOp op);
  mlir::LogicalResult visitConcatenate(ConcatenateOp op);
  mlir::LogicalResult visitFlat(mlir::Operation *op, const Sharding &flat);
  mlir::LogicalResult visitByParts(mlir::Operation *op, const FactorRule &rule);
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
  bool isCutWhereWhole(mlir::Operation *op, const FactorRule &rule);
  std::optional<Choice> choose(mlir::Operation *op, const FactorRule &rule);
  Sharding apply(const std::optional<Choice> &choice,
                 const FactorRule::Dims &dims);
  llvm::SmallVector<Axes> keepPartial(mlir::Operation *op);
  void settle(mlir::Value whole, mlir::Value local, Sharding sharding);

  mlir::OpBuilder builder;
  const Mesh &mesh;
  Options options;
  Resharder resharder;
  llvm::DenseMap<mlir::Value, Known> known;
  llvm::DenseMap<mlir::Value, Sharding> wishes;
  unsigned time = 0;
  bool isInParts = false; // Time stands still while an op is taken apart.
};

} // namespace kiln::shard

#endif // KILN_COMPILER_SHARD_PARTITIONER_H
