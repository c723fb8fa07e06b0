// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_CONTRACTION_H
#define KILN_COMPILER_LOWER_CONTRACTION_H

#include "dialects/kiln/Kiln.h"

#include <optional>

namespace kiln {

/// A contraction as one matrix product C[m,n] = sum over k of A[m,k] B[k,n] on
/// row-major C.
struct MatrixProduct {
  int64_t m, n, k;
  int64_t aRowStride, aColumnStride; ///< In elements; one of them is 1.
  int64_t bRowStride, bColumnStride;
};

/// Empty if an operand would first have to be permuted or swapped, or if the op
/// has batch indices.
std::optional<MatrixProduct> asMatrixProduct(ContractOp op);

} // namespace kiln

#endif // KILN_COMPILER_LOWER_CONTRACTION_H
