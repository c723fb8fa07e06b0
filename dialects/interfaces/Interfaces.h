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

/// Groups of operand indices.
using OperandGroups = llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 2>;

/// Global indices of a local shard along the dimensions that an op has letters
/// for. Returned values are built at the insertion point of `Placed::place`.
class PartPlace {
public:
  virtual ~PartPlace() = default;
  virtual bool isCut(char letter) = 0;
  /// Size in the full tensor.
  virtual int64_t getSize(char letter) = 0;
  /// Global index of the first element of a contiguous shard: a scalar.
  virtual mlir::Value getFirst(char letter) = 0;
  /// Global indices of all elements of the shard.
  virtual mlir::Value getNumbers(char letter) = 0;
};

/// Sums of products as a matrix product C[m,n] = sum over k of A[m,k] B[k,n],
/// repeated over a batch. Of each C, `computed` elements are needed: fewer than
/// m n where causal attention skips masked scores.
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

/// Cost of an op, by closed formulas over static shapes.
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

// Derived from an op's loop maps by the interfaces.
llvm::SmallVector<mlir::AffineMap> getIdentityLoopMaps(mlir::Operation *op);
mlir::LogicalResult verifyStructured(mlir::Operation *op);
mlir::LogicalResult verifyAccumulating(mlir::Operation *op);
/// From its loop maps if the op is Structured, from its definition if it is
/// Composite; any other op only moves bytes.
Work getDerivedWork(mlir::Operation *op);

} // namespace kiln

#include "dialects/interfaces/Interfaces.h.inc"

namespace kiln {

/// Whether arithmetic on elements of this type is done in f32: bf16 and f16.
bool isNarrow(mlir::Type element);

/// The type in which elements of this type are added: see Accumulating.
mlir::Type getAccumulatorType(mlir::Type element);

/// The element type of the operands of an Accumulating op, statistics apart.
mlir::Type getOperandType(Accumulating op);

/// Bytes of a tensor with static shape; an i1 takes one.
int64_t getByteSize(mlir::Type type);

/// Sizes of the loop dimensions of `op`, kDynamic where the batch is symbolic.
llvm::SmallVector<int64_t> getLoopSizes(Structured op);

/// Whether each element of the result depends only on the operands' elements at
/// the same position.
bool isElementwise(mlir::Operation *op);

/// Whether each element of the result is a sum of the operands' elements, up to
/// signs: the gradient reads none of them.
bool isElementwiseSum(mlir::Operation *op);

/// Whether it adds up elements of its only operand.
bool isSum(mlir::Operation *op);

/// Whether it computes nothing and moves elements in this way.
bool isMovement(mlir::Operation *op, Movement movement);

} // namespace kiln

#endif // KILN_DIALECTS_INTERFACES_INTERFACES_H
