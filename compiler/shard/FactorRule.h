// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_SHARD_FACTORRULE_H
#define KILN_COMPILER_SHARD_FACTORRULE_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// Which dimensions of an op's operands and results belong together, by factor:
/// one form for ops that are Structured and ops that are Factored.
struct FactorRule {
  using Dims = llvm::SmallVector<unsigned>; // The factor of each dimension.
  llvm::SmallVector<Dims> operands, results;
  llvm::SmallVector<bool> mustBeWhole; // By factor: it cannot be cut.
  /// By factor: a shard must be one range of global indices (see Placed).
  llvm::SmallVector<bool> mustBeContiguous;
  std::string letters;                   // By factor, if an equation gave them.
  Reduction reduction = Reduction::none; // Over factors that a result lacks.

  /// None for ops that neither interface describes.
  static std::optional<FactorRule> get(mlir::Operation *op);

  unsigned countFactors() const { return mustBeWhole.size(); }
  /// Whether some result does not have the factor.
  bool isReduced(unsigned factor) const;
  static std::optional<unsigned> findDim(const Dims &dims, unsigned factor);
};

} // namespace kiln

#endif // KILN_COMPILER_SHARD_FACTORRULE_H
