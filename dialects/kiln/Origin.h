// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_KILN_ORIGIN_H
#define KILN_DIALECTS_KILN_ORIGIN_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// From differentiation on, locations say where in the model an op comes from:
/// its layer, whether it is part of the backward pass or recomputed, and the
/// parameter whose gradient it computes. Gradient rules and rewrites hand
/// locations on, equal ops of two layers can still be merged, and the origin is
/// no part of a kernel's identity.
mlir::Location withOrigin(mlir::Location loc, llvm::StringRef key,
                          mlir::Attribute value);
/// Null if the location has none.
mlir::Attribute getOrigin(mlir::Location loc, llvm::StringRef key);

inline mlir::Attribute getLayer(mlir::Location loc) {
  return getOrigin(loc, kLayerAttribute);
}

/// Values of kPassAttribute; the forward pass has none.
inline constexpr llvm::StringLiteral kBackwardPass = "backward";
inline constexpr llvm::StringLiteral kRecomputedPass = "recomputed";

/// The part of the model that an op was written for: the name that a builder of
/// models gave it, or file and line. Empty if unknown.
std::string getModelName(mlir::Location loc);

} // namespace kiln

#endif // KILN_DIALECTS_KILN_ORIGIN_H
