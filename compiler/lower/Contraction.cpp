// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/Contraction.h"

using namespace mlir;

namespace kiln {

// Letters of `term` that `other` has, in the order of `term`.
static std::string shared(StringRef term, StringRef other) {
  std::string letters;
  for (char letter : term)
    if (other.contains(letter))
      letters += letter;
  return letters;
}

std::optional<MatrixProduct> asMatrixProduct(ContractOp op) {
  auto [inputs, c] = op.getEquation().split("->");
  auto [a, b] = inputs.split(',');
  llvm::SmallDenseMap<char, int64_t> sizes;
  for (auto [term, value] :
       {std::pair(a, op.getLhs()), std::pair(b, op.getRhs())})
    for (auto [letter, size] : llvm::zip_equal(
             term, cast<RankedTensorType>(value.getType()).getShape()))
      sizes[letter] = size;
  auto product = [&](StringRef letters) {
    int64_t result = 1;
    for (char letter : letters)
      result *= sizes.at(letter);
    return result;
  };
  MatrixProduct matrix;
  std::string rows = shared(c, a), columns = shared(c, b);
  std::string summed = shared(a, b);
  // Covers batch indices (in a, b and c) too: they make `rows + columns` longer
  // than c.
  if (c != rows + columns || shared(b, a) != summed)
    return std::nullopt;
  matrix.m = product(rows);
  matrix.n = product(columns);
  matrix.k = product(summed);
  if (a == rows + summed) {
    matrix.aRowStride = matrix.k;
    matrix.aColumnStride = 1;
  } else if (a == summed + rows) {
    matrix.aRowStride = 1;
    matrix.aColumnStride = matrix.m;
  } else {
    return std::nullopt;
  }
  if (b == summed + columns) {
    matrix.bRowStride = matrix.n;
    matrix.bColumnStride = 1;
  } else if (b == columns + summed) {
    matrix.bRowStride = 1;
    matrix.bColumnStride = matrix.k;
  } else {
    return std::nullopt;
  }
  return matrix;
}

} // namespace kiln
