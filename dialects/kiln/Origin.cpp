// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/kiln/Origin.h"

#include "llvm/Support/Path.h"

using namespace mlir;

namespace kiln {

using Marked = FusedLocWith<DictionaryAttr>;

Location withOrigin(Location loc, StringRef key, Attribute value) {
  MLIRContext *context = loc->getContext();
  NamedAttrList origin;
  SmallVector<Location> inner = {loc};
  if (auto marked = dyn_cast<Marked>(loc)) {
    origin = marked.getMetadata();
    inner = llvm::to_vector(marked.getLocations());
  }
  origin.set(key, value);
  return FusedLoc::get(inner, origin.getDictionary(context), context);
}

Attribute getOrigin(Location loc, StringRef key) {
  auto marked = loc->findInstanceOf<Marked>();
  return marked ? marked.getMetadata().get(key) : nullptr;
}

std::string getModelName(Location loc) {
  if (auto name = loc->findInstanceOf<NameLoc>())
    return name.getName().str();
  if (auto line = loc->findInstanceOf<FileLineColLoc>())
    return (llvm::sys::path::filename(line.getFilename().getValue()) + ":" +
            Twine(line.getLine()))
        .str();
  return "";
}

} // namespace kiln
