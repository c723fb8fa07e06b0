// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_INTERFACES_INTERFACES_H
#define KILN_DIALECTS_INTERFACES_INTERFACES_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

namespace kiln {

/// How points that meet in one element of a result are combined.
enum class Reduction { none, sum, max };

/// How an op that computes nothing moves elements.
enum class Movement {
  view,     ///< Not at all: the result shares the operand's buffer.
  repeat,   ///< Along new dimensions.
  permute,  ///< Dimensions in another order.
  range,    ///< Contiguous ranges of one dimension.
  lookup,   ///< Rows of a table by their ids.
  transfer, ///< Between the memory of the device and of the host.
};

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

/// Sums of products as a matrix product C[m,n] = sum over k of A[m,k] B[k,n],
/// repeated over a batch. Of each C, `computed` elements are wanted: fewer than
/// m n where causal attention leaves out what no position sees.
struct MatrixWork {
  int64_t batch, m, n, k, computed;
  mlir::Type elementType;

  MatrixWork(int64_t batch, int64_t m, int64_t n, int64_t k,
             mlir::Type elementType)
      : batch(batch), m(m), n(n), k(k), computed(m * n),
        elementType(elementType) {}
  /// Multiplications and additions.
  int64_t getFlops() const { return 2 * batch * computed * k; }
};

/// What an op costs, by closed formulas over static shapes.
struct Work {
  llvm::SmallVector<MatrixWork, 2> products;
  int64_t pointwise = 0; ///< Scalar operations that are not part of a product.
  int64_t bytes = 0;     ///< Read and written, each operand and result once.

  int64_t getFlops() const {
    int64_t flops = 0;
    for (const MatrixWork &product : products)
      flops += product.getFlops();
    return flops;
  }
};

/// Bytes of all operands and results.
int64_t getStreamedBytes(mlir::Operation *op);

// What the interfaces derive from an op's loop maps.
llvm::SmallVector<mlir::AffineMap> getIdentityLoopMaps(mlir::Operation *op);
mlir::LogicalResult verifyStructured(mlir::Operation *op);
/// From its loop maps if the op is Structured, from its definition if it is
/// Composite; any other moves bytes.
Work getDerivedWork(mlir::Operation *op);

} // namespace kiln

#include "dialects/interfaces/Interfaces.h.inc"

namespace kiln {

/// Bytes of a tensor with static shape; a truth value takes one.
int64_t getByteSize(mlir::Type type);

/// Sizes of the loop dimensions of `op`, kDynamic where the batch is symbolic.
llvm::SmallVector<int64_t> getLoopSizes(Structured op);

/// Whether it makes each element of the elements of its operands at the same
/// place.
bool isElementwise(mlir::Operation *op);

/// Whether it computes nothing and moves elements in this way.
bool isMovement(mlir::Operation *op, Movement movement);

} // namespace kiln

#endif // KILN_DIALECTS_INTERFACES_INTERFACES_H
