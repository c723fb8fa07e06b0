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

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

/// Sums are taken in the type of the elements; for bf16 they are not defined.
inline mlir::LogicalResult verifySummable(mlir::Operation *op) {
  llvm::SmallVector<mlir::Type> types(op->getOperandTypes());
  llvm::append_range(types, op->getResultTypes());
  for (mlir::Type type : types)
    if (mlir::getElementTypeOrSelf(type).isBF16())
      return op->emitOpError("sums elements of type ")
             << mlir::getElementTypeOrSelf(type)
             << "; wanted f32 or f64, as kiln.convert makes them";
  return mlir::success();
}

inline mlir::LogicalResult
verifySameElements(mlir::Operation *op, mlir::Type first, mlir::Type second) {
  if (mlir::getElementTypeOrSelf(first) != mlir::getElementTypeOrSelf(second))
    return op->emitOpError("has elements of type ")
           << mlir::getElementTypeOrSelf(first) << " and "
           << mlir::getElementTypeOrSelf(second) << "; wanted one type";
  return mlir::success();
}

} // namespace kiln

#endif // KILN_DIALECTS_KILN_ANSWERS_H
