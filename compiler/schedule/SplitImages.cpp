// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes an image for every share of the batch that a replica has: replicas with
// the same share run the same image. Everything behind this pass runs on images
// one by one.
#include "compiler/pipeline/Passes.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_SPLITIMAGES
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct SplitImagesPass : impl::SplitImagesBase<SplitImagesPass> {
  using SplitImagesBase::SplitImagesBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::SmallSetVector<int64_t, 4> distinct(shares.begin(), shares.end());
    if (distinct.empty()) {
      module.emitError("needs the shares of the replicas, found none");
      return signalPassFailure();
    }
    ModuleOp first = ModuleOp::create(module.getLoc());
    first->setAttrs(module->getDiscardableAttrDictionary());
    first.getBody()->getOperations().splice(first.getBody()->begin(),
                                            module.getBody()->getOperations());
    for (auto [number, share] : llvm::enumerate(distinct)) {
      ModuleOp image = number == 0 ? first : first.clone();
      image.setSymName("image" + std::to_string(number));
      image->setAttr(kShareAttribute,
                     Builder(module.getContext()).getI64IntegerAttr(share));
      module.push_back(image);
    }
  }
};

} // namespace
} // namespace kiln
