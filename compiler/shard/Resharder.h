// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_SHARD_RESHARDER_H
#define KILN_COMPILER_SHARD_RESHARDER_H

#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Sharding.h"

namespace kiln::shard {

/// The element type with which collectives move these elements: truth values
/// are moved as i32.
mlir::Type getMovedType(mlir::Type element);

/// Whether a value is one of 16 bits, converted to a wider type: the operand of
/// the conversion is moved instead.
bool isWidened(mlir::Value full);

/// Writes the collectives that take a tensor from one sharding to another, at
/// the builder's insertion point.
class Resharder {
public:
  /// Sums of elements of 16 bits are taken in the type `messages`, unless it is
  /// null or narrow itself.
  Resharder(mlir::OpBuilder &builder, const Mesh &mesh, mlir::Type messages)
      : builder(builder), mesh(mesh), messages(messages) {}

  /// The type in which elements of this type are summed over devices.
  mlir::Type getSummedType(mlir::Type element) const {
    return isNarrow(element) && messages && !isNarrow(messages) ? messages
                                                                : element;
  }

  mlir::OpBuilder &getBuilder() { return builder; }

  /// `local` is the device's shard of a tensor of type `full` under `from`.
  /// Axes that stay partial are partial in both.
  mlir::Value reshard(mlir::Value local, mlir::RankedTensorType full,
                      Sharding from, const Sharding &to);

  /// The same elements combined over the devices along the axes.
  mlir::Value allReduce(mlir::Value local, llvm::ArrayRef<unsigned> axes,
                        Combine combine);

  /// Bytes that a device receives for it, with one sample as the batch.
  int64_t countMovedBytes(mlir::RankedTensorType full, const Sharding &from,
                          const Sharding &to) const;

  /// While set, the location of collectives instead of that of their operand:
  /// the variable whose gradient or new value they move, so that they belong to
  /// its layer.
  std::optional<mlir::Location> origin;

  /// A scalar i32: this device's rank along the axes.
  mlir::Value coordinate(llvm::ArrayRef<unsigned> axes, mlir::Location loc);

  /// Sets elements past the end of a cut dimension of `local` to `fill`.
  mlir::Value maskPadding(mlir::Value local, unsigned dimension, int64_t size,
                          const Cut &cut, double fill);

private:
  enum class Kind { AllReduce, ReduceScatter, AllGather, AllSlice };
  /// One collective. The cut is that of a dimension, or of the flattened shard
  /// if there is none.
  struct Step {
    Kind kind;
    std::optional<unsigned> dimension;
    Cut cut;
    Sharding before, after;
  };

  llvm::SmallVector<Step, 2> plan(Sharding from, const Sharding &to) const;
  void planPartial(llvm::SmallVectorImpl<Step> &steps, Sharding &from,
                   const Sharding &to) const;
  mlir::Value emit(const Step &step, mlir::Value local,
                   mlir::RankedTensorType full);
  mlir::Value emitCut(const Step &step, mlir::Value local,
                      mlir::RankedTensorType type);

  mlir::OpBuilder &builder;
  const Mesh &mesh;
  mlir::Type messages;
};

} // namespace kiln::shard

#endif // KILN_COMPILER_SHARD_RESHARDER_H
