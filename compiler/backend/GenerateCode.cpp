// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Has each backend generate the code of its own kernels. A kernel's name is the
// hash of its identity, so kernels of one name share their code, across images
// too.
#include "compiler/pipeline/Passes.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_GENERATECODE
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct GenerateCodePass : impl::GenerateCodeBase<GenerateCodePass> {
  GenerateCodePass(const Backends *backends, CodeStore *store,
                   ProgramCode *code)
      : backends(backends), store(store), code(code) {}

  LogicalResult initialize(MLIRContext *context) override {
    for (const Backend *backend :
         (backends ? *backends : getDefaultBackends()).getAll())
      backend->prepare(*context);
    return success();
  }

  void runOnOperation() override {
    const Backends &asked = backends ? *backends : getDefaultBackends();
    for (const Backend *backend : asked.getAll()) {
      SmallVector<exec::KernelOp> kernels;
      llvm::StringSet<> seen;
      getOperation().walk([&](exec::KernelOp kernel) {
        if (&asked.get(kernel.getSpace()) == backend &&
            seen.insert(kernel.getSymName()).second)
          kernels.push_back(kernel);
      });
      if (kernels.empty() && backend != &asked.getDevice())
        continue;
      FailureOr<GeneratedCode> generated = backend->generate(kernels, store);
      if (failed(generated))
        return signalPassFailure();
      if (!generated->status.ok()) {
        if (code)
          code->status = generated->status;
        return signalPassFailure();
      }
      record(kernels, *generated);
      if (code)
        code->targets.push_back({backend->getName().str(), backend->getTarget(),
                                 std::move(generated->sections)});
    }
  }

  void record(ArrayRef<exec::KernelOp> kernels, const GeneratedCode &made) {
    llvm::StringMap<const std::vector<KernelStage> *> stagesOf;
    for (size_t number = 0; number < kernels.size(); ++number)
      stagesOf[exec::KernelOp(kernels[number]).getSymName()] =
          &made.stages[number];
    getOperation().walk([&](exec::KernelOp kernel) {
      if (const auto *stages = stagesOf.lookup(kernel.getSymName()))
        setStages(kernel, *stages);
    });
  }

  const Backends *backends;
  CodeStore *store;
  ProgramCode *code;
};

} // namespace

std::unique_ptr<Pass> createGenerateCode(const Backends *backends,
                                         CodeStore *store, ProgramCode *code) {
  return std::make_unique<GenerateCodePass>(backends, store, code);
}

} // namespace kiln
