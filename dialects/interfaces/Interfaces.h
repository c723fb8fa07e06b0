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

/// Where a part lies in the whole, along the dimensions that an op has letters
/// for. What it returns is made where the op is told.
class PartPlace {
public:
  virtual ~PartPlace() = default;
  virtual bool isCut(char letter) = 0;
  /// Of the whole.
  virtual int64_t getSize(char letter) = 0;
  /// The number, in the whole, of the first element of a part that lies
  /// together: a scalar.
  virtual mlir::Value getFirst(char letter) = 0;
  /// The numbers of all elements of the part.
  virtual mlir::Value getNumbers(char letter) = 0;
};

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
