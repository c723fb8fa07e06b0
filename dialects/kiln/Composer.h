// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_KILN_COMPOSER_H
#define KILN_DIALECTS_KILN_COMPOSER_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// Writes formulas in kiln ops at one place: gradient rules, definitions of
/// composite ops and optimizers read like the equations that they stand for.
class Composer {
public:
  Composer(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  mlir::Value constant(double value, mlir::Type elementType);
  /// A tensor shaped like `like` with every element `value`.
  mlir::Value fill(double value, mlir::Value like);
  mlir::Value zeros(mlir::RankedTensorType type);

  mlir::Value negate(mlir::Value x);
  mlir::Value exp(mlir::Value x);
  mlir::Value log(mlir::Value x);
  mlir::Value tanh(mlir::Value x);
  mlir::Value erf(mlir::Value x);
  mlir::Value sqrt(mlir::Value x);
  mlir::Value rsqrt(mlir::Value x);
  mlir::Value abs(mlir::Value x);
  mlir::Value cos(mlir::Value x);
  mlir::Value sin(mlir::Value x);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value sub(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, mlir::Value y);
  mlir::Value div(mlir::Value x, mlir::Value y);
  mlir::Value maximum(mlir::Value x, mlir::Value y);
  mlir::Value minimum(mlir::Value x, mlir::Value y);
  mlir::Value add(mlir::Value x, double y) { return add(x, fill(y, x)); }
  mlir::Value sub(mlir::Value x, double y) { return sub(x, fill(y, x)); }
  mlir::Value mul(mlir::Value x, double y) { return mul(x, fill(y, x)); }
  mlir::Value div(mlir::Value x, double y) { return div(x, fill(y, x)); }

  mlir::Value compare(Predicate predicate, mlir::Value x, mlir::Value y);
  mlir::Value compare(Predicate predicate, mlir::Value x, double y) {
    return compare(predicate, x, fill(y, x));
  }
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y);
  mlir::Value convert(mlir::Value x, mlir::Type elementType);
  /// Elements of 16 bits in f32, others as they are.
  mlir::Value widen(mlir::Value x);
  /// `x` with elements of the type of those of `like`.
  mlir::Value convertLike(mlir::Value x, mlir::Value like);

  /// Equations give the shape of a result from those of the operands; sizes
  /// that only a broadcast result has come from `type`.
  mlir::Value broadcast(llvm::StringRef equation, mlir::Value x,
                        mlir::RankedTensorType type);
  /// In the accumulator's type, as are contractions.
  mlir::Value sum(llvm::StringRef equation, mlir::Value x);
  mlir::Value max(llvm::StringRef equation, mlir::Value x);
  mlir::Value transpose(llvm::StringRef equation, mlir::Value x);
  mlir::Value contract(llvm::StringRef equation, mlir::Value x, mlir::Value y);

  /// A scalar repeated to the shape of `like`.
  mlir::Value spread(mlir::Value scalar, mlir::Value like);
  /// One value per row repeated over the last dimension of `like`.
  mlir::Value spreadRows(mlir::Value rows, mlir::Value like);
  /// A vector repeated over all but the last dimension of `like`.
  mlir::Value spreadColumns(mlir::Value columns, mlir::Value like);
  mlir::Value sumRows(mlir::Value x);    ///< Over the last dimension.
  mlir::Value maxRows(mlir::Value x);    ///< Over the last dimension.
  mlir::Value sumColumns(mlir::Value x); ///< Over all but the last dimension.
  mlir::Value sumAll(mlir::Value x);

  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value iota(int64_t size);
  mlir::Value slice(mlir::Value x, int64_t dimension, int64_t offset,
                    int64_t size);
  mlir::Value concatenate(mlir::ValueRange parts, int64_t dimension);
  mlir::Value defer(mlir::Value x, mlir::Value until);
  mlir::Value transfer(mlir::Value x, Memory memory);

  /// Scores[b, h, s, t] of query s and key t, minus infinity where the key is
  /// in the future (if `isCausal`) or past the length of the sample (if
  /// `lengths` is not null). The first key is never masked.
  mlir::Value maskScores(mlir::Value scores, bool isCausal,
                         mlir::Value lengths);

  /// Whether a column of logits[..., class] is the label of its row.
  mlir::Value isLabel(mlir::Value labels, mlir::Value logits);
  /// Number of labelled rows whose label has the greatest logit.
  mlir::Value countCorrect(mlir::Value logits, mlir::Value labels);

  mlir::OpBuilder &builder;
  mlir::Location loc;

private:
  mlir::RankedTensorType inferType(llvm::StringRef equation,
                                   mlir::ValueRange operands);
};

inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

/// The type of `value` with elements of the accumulator's type.
inline mlir::RankedTensorType accumulatorType(mlir::Value value) {
  mlir::RankedTensorType type = tensorType(value);
  return type.clone(getAccumulatorType(type.getElementType()));
}

/// Whether every element is known to be zero.
bool isZero(mlir::Value value);

/// The first `rank` index letters, from 'a'.
std::string indexLetters(int64_t rank);

} // namespace kiln

#endif // KILN_DIALECTS_KILN_COMPOSER_H
