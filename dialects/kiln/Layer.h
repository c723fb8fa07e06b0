// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_KILN_LAYER_H
#define KILN_DIALECTS_KILN_LAYER_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// The layer of the model is kept in locations from differentiation on.
/// Gradient rules and rewrites hand locations on, equal ops of two layers can
/// still be merged, and the layer is no part of a kernel's identity.
inline mlir::Location withLayer(mlir::Location loc, mlir::Attribute layer) {
  mlir::MLIRContext *context = loc->getContext();
  return mlir::FusedLoc::get(
      {loc},
      mlir::DictionaryAttr::get(context,
                                mlir::NamedAttribute(kLayerAttribute, layer)),
      context);
}

/// Null for a location that belongs to no layer.
inline mlir::Attribute getLayer(mlir::Location loc) {
  auto marked = loc->findInstanceOf<mlir::FusedLocWith<mlir::DictionaryAttr>>();
  return marked ? marked.getMetadata().get(kLayerAttribute) : nullptr;
}

} // namespace kiln

#endif // KILN_DIALECTS_KILN_LAYER_H
