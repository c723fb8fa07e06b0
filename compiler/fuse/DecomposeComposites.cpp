// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Replaces composite ops by their definitions, so that fusion sees elementwise
// ops and reductions. Ops for which the devices' backend has a joint form stay
// whole. Unused results of a definition die with it.
#include "compiler/pipeline/Passes.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_DECOMPOSECOMPOSITES
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct DecomposeCompositesPass
    : impl::DecomposeCompositesBase<DecomposeCompositesPass> {
  explicit DecomposeCompositesPass(const Backends *backends)
      : backends(backends) {}

  void runOnOperation() override {
    const Backend &backend =
        (backends ? *backends : getDefaultBackends(reference)).getDevice();
    SmallVector<Composite> work;
    getOperation().walk([&](Composite op) { work.push_back(op); });
    // A definition may use composites in turn; they are appended.
    while (!work.empty()) {
      Composite op = work.pop_back_val();
      if (backend.hasJointForm(op))
        continue;
      OpBuilder builder(op);
      Operation *before = op->getPrevNode();
      SmallVector<Value> values = op.decompose(builder);
      for (Operation *made = op->getPrevNode(); made && made != before;
           made = made->getPrevNode())
        if (auto composite = dyn_cast<Composite>(made))
          work.push_back(composite);
      op->replaceAllUsesWith(values);
      op->erase();
    }
  }

  const Backends *backends;
};

} // namespace

std::unique_ptr<Pass> createDecomposeComposites(const Backends *backends) {
  return std::make_unique<DecomposeCompositesPass>(backends);
}

} // namespace kiln
