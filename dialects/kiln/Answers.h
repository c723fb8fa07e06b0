// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the ops' implementations of dialects/interfaces. Each source file
// beside this one implements all interfaces of some ops.
#ifndef KILN_DIALECTS_KILN_ANSWERS_H
#define KILN_DIALECTS_KILN_ANSWERS_H

#include "dialects/kiln/Composer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

namespace kiln {

using Values = llvm::SmallVector<mlir::Value>;

//===----------------------------------------------------------------------===//
// Factors
//===----------------------------------------------------------------------===//

inline std::string letters(mlir::Value value) {
  return indexLetters(tensorType(value).getRank());
}

/// All dimensions but the last, which is not sharded.
inline std::string rowsOf(mlir::Value value) {
  return indexLetters(tensorType(value).getRank() - 1);
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

/// A scalar of type `element`, or a vector as long as `x`.
inline mlir::Type typeLike(mlir::Value x, mlir::Type element) {
  auto vector = mlir::dyn_cast<mlir::VectorType>(x.getType());
  return vector ? mlir::Type(vector.clone(element)) : element;
}

inline mlir::Value buildInteger(mlir::OpBuilder &builder, mlir::Location loc,
                                mlir::Type type, int64_t value) {
  mlir::TypedAttr number =
      builder.getIntegerAttr(mlir::getElementTypeOrSelf(type), value);
  if (auto vector = mlir::dyn_cast<mlir::VectorType>(type))
    number = mlir::DenseElementsAttr::get(vector, mlir::Attribute(number));
  return mlir::arith::ConstantOp::create(builder, loc, number);
}

/// A scalar or vector of 16 bits in f32, any other as it is.
inline mlir::Value widen(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value x) {
  mlir::Type element = mlir::getElementTypeOrSelf(x.getType());
  if (!isNarrow(element))
    return x;
  return mlir::arith::ExtFOp::create(
      builder, loc, typeLike(x, getAccumulatorType(element)), x);
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

/// Whether two tensors have one shape, whatever their elements.
inline bool haveSameShape(mlir::Value first, mlir::Value second) {
  return tensorType(first).getShape() == tensorType(second).getShape();
}

} // namespace kiln

#endif // KILN_DIALECTS_KILN_ANSWERS_H
