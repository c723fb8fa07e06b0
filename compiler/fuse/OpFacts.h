// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FUSE_OPFACTS_H
#define KILN_COMPILER_FUSE_OPFACTS_H

#include "dialects/kiln/Kiln.h"

#include <optional>
#include <unordered_map>

namespace kiln {

/// Facts about an op that fusion asks for. They follow from name, attributes
/// and types.
struct OpFacts {
  /// See needsKernel and isFusable.
  bool isFusable = false;
  /// Whether the result of a fusable op is larger than all that it reads: a
  /// broadcast, a constant, a bf16 value converted to f32.
  bool isExpanding = false;
  /// Whether it neither computes nor reads more than scalars.
  bool isScalar = false;
  /// A reduction that loses leading dimensions and keeps more than the last
  /// one, such as "bsd->sd", needs rows of its own kind.
  bool hasUnusualRows = false;
  /// Elements of its largest operand or result.
  int64_t largest = 0;
  /// The shape of every operand and result that is not a scalar, if they agree
  /// and the op computes each element by itself. Such ops share loops with any
  /// like them. A scalar if all are.
  std::optional<llvm::ArrayRef<int64_t>> uniformShape;
};

/// Of ops with their types, and of which of them reads which.
size_t hashStructure(llvm::ArrayRef<mlir::Operation *> ops);

/// Computes the facts once for ops that are alike: layers are.
class OpFactTable {
public:
  const OpFacts &get(mlir::Operation *op);

private:
  std::unordered_map<size_t, OpFacts> known;
};

} // namespace kiln

#endif // KILN_COMPILER_FUSE_OPFACTS_H
