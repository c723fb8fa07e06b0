// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Meshes and shardings as passes use them; attributes are their printed form.
// In a namespace of its own, because the runtime has a mesh, too.
#ifndef KILN_DIALECTS_KILN_SHARDING_H
#define KILN_DIALECTS_KILN_SHARDING_H

#include "dialects/kiln/Kiln.h"

namespace kiln::shard {

/// Names of the mesh axes: the batch is sharded over the first, the dimensions
/// of a sample over the second.
inline constexpr llvm::StringLiteral kDataAxis = "data";
inline constexpr llvm::StringLiteral kTensorAxis = "tensor";

/// Indices of mesh axes, in the order of the mesh.
using Axes = llvm::SmallVector<unsigned, 2>;

/// Device mesh with named axes; the last varies fastest.
struct Mesh {
  llvm::SmallVector<std::string> names;
  llvm::SmallVector<int64_t> sizes;

  static Mesh get(MeshAttr attribute);
  MeshAttr toAttribute(mlir::MLIRContext *context) const;
  int64_t countParts(llvm::ArrayRef<unsigned> axes) const;
  mlir::ArrayAttr toNames(llvm::ArrayRef<unsigned> axes,
                          mlir::MLIRContext *context) const;
  /// Axes by name; none if the mesh lacks one.
  std::optional<Axes> findAxes(mlir::ArrayAttr names) const;
};

/// See CutAttr.
struct Cut {
  Axes axes;
  int64_t blocks = 1, unit = 1;

  bool isWhole() const { return axes.empty(); }
  bool operator==(const Cut &other) const = default;
  /// Units of a block, for a dimension of this size.
  int64_t countUnits(int64_t size) const { return size / blocks / unit; }
  int64_t localUnits(int64_t size, const Mesh &mesh) const {
    return llvm::divideCeil(countUnits(size), mesh.countParts(axes));
  }
  int64_t localSize(int64_t size, const Mesh &mesh) const {
    return isWhole() ? size : blocks * localUnits(size, mesh) * unit;
  }
  bool isPadded(int64_t size, const Mesh &mesh) const {
    return !isWhole() && countUnits(size) % mesh.countParts(axes) != 0;
  }
};

/// See ShardingAttr.
struct Sharding {
  llvm::SmallVector<Cut> dims;
  Axes flat;
  Axes partial; // In ascending order.

  static Sharding whole(int64_t rank) {
    return {llvm::SmallVector<Cut>(rank), {}, {}};
  }
  /// Null if it names axes that the mesh does not have.
  static std::optional<Sharding> get(ShardingAttr attribute, const Mesh &mesh);
  /// Sharding of a partitioned variable; replicated before partitioning.
  static Sharding of(VariableOp variable, const Mesh &mesh);
  ShardingAttr toAttribute(const Mesh &mesh, mlir::MLIRContext *context) const;
  bool operator==(const Sharding &other) const = default;
  bool isWhole() const { return *this == whole(dims.size()); }
  /// Whether some local shard contains padding.
  bool isPadded(mlir::RankedTensorType whole, const Mesh &mesh) const;
  /// Whether no axis is used twice.
  bool usesAxesOnce() const;

  /// Type of the local shard. The batch `?` stays: it is sharded by giving each
  /// replica its samples.
  mlir::RankedTensorType localType(mlir::RankedTensorType whole,
                                   const Mesh &mesh) const;
  /// The same before the flat cut.
  mlir::RankedTensorType localBox(mlir::RankedTensorType whole,
                                  const Mesh &mesh) const;
};

/// Whether the local shards tile the full tensor exactly, apart from padding,
/// and each has type `local`. Reports the first mismatch.
mlir::LogicalResult
verifyTiling(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
             mlir::RankedTensorType whole, mlir::RankedTensorType local,
             const Sharding &sharding, const Mesh &mesh);

/// The module's mesh; without axes if the module has none.
inline constexpr llvm::StringLiteral kMeshAttribute = "kiln.mesh";
Mesh getMesh(mlir::Operation *op);

} // namespace kiln::shard

#endif // KILN_DIALECTS_KILN_SHARDING_H
