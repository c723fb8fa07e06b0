// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_SHARD_RESHARDER_H
#define KILN_COMPILER_SHARD_RESHARDER_H

#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Sharding.h"

namespace kiln::shard {

/// Writes the collectives that take a tensor from one sharding to another, at
/// the builder's place.
class Resharder {
public:
  Resharder(mlir::OpBuilder &builder, const Mesh &mesh)
      : builder(builder), mesh(mesh) {}

  /// `local` is what a device has of a tensor of type `whole` under `from`.
  /// Axes that stay partial are partial in both.
  mlir::Value reshard(mlir::Value local, mlir::RankedTensorType whole,
                      Sharding from, const Sharding &to);

  /// A scalar i32: this device's place along the axes.
  mlir::Value coordinate(llvm::ArrayRef<unsigned> axes, mlir::Location loc);

  /// Sets elements past the end of a cut dimension of `local` to `fill`.
  mlir::Value maskPadding(mlir::Value local, unsigned dimension, int64_t size,
                          const Cut &cut, double fill);

private:
  mlir::Value allReduce(mlir::Value value, llvm::ArrayRef<unsigned> axes);
  template <typename Op>
  mlir::Value cutOp(mlir::Value value, mlir::RankedTensorType type,
                    unsigned dimension, const Cut &cut);
  mlir::Value reducePartial(mlir::Value value, mlir::RankedTensorType whole,
                            Sharding &from, const Sharding &to);
  mlir::Value flatten(mlir::Value value, mlir::RankedTensorType whole,
                      Sharding &from, const Sharding &to);
  mlir::Value unflatten(mlir::Value value, mlir::RankedTensorType whole,
                        Sharding &from);
  mlir::Value gather(mlir::Value value, mlir::RankedTensorType whole,
                     Sharding &from, unsigned dimension);

  mlir::OpBuilder &builder;
  const Mesh &mesh;
};

} // namespace kiln::shard

#endif // KILN_COMPILER_SHARD_RESHARDER_H
