// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_INTERFACES_INTERFACES_H
#define KILN_DIALECTS_INTERFACES_INTERFACES_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

namespace kiln {

/// How points that meet in one element of a result are combined.
enum class Reduction { none, sum, max };

/// Operands that belong together, by their numbers.
using OperandGroups = llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 2>;

// What the interfaces derive from an op's loop maps.
llvm::SmallVector<mlir::AffineMap> getIdentityLoopMaps(mlir::Operation *op);
mlir::LogicalResult verifyStructured(mlir::Operation *op);
int64_t getStructuredFlops(mlir::Operation *op);
int64_t getStructuredPointwise(mlir::Operation *op);

} // namespace kiln

#include "dialects/interfaces/Interfaces.h.inc"

namespace kiln {

/// Sizes of the loop dimensions of `op`, kDynamic where the batch is symbolic.
llvm::SmallVector<int64_t> getLoopSizes(Structured op);

/// Whether it makes each element of the elements of its operands at the same
/// place.
bool isElementwise(mlir::Operation *op);

} // namespace kiln

#endif // KILN_DIALECTS_INTERFACES_INTERFACES_H
