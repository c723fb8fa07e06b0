// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/pipeline/Pipeline.h"

#include "mlir/Pass/PassInstrumentation.h"
#include "llvm/Support/Format.h"

using namespace mlir;

namespace kiln {

namespace {

/// Passes that are not Kiln's own clean up behind one that is: its file shows
/// what both have left.
class DumpAfterPasses : public PassInstrumentation {
public:
  explicit DumpAfterPasses(std::string folder) : folder(std::move(folder)) {}

  void runAfterPass(Pass *pass, Operation *op) override {
    auto module = dyn_cast<ModuleOp>(op);
    if (!module || !isShown(module))
      return;
    StringRef argument = pass->getArgument();
    // A contract changes nothing; a pass without a name runs those of images.
    if (argument == "kiln-verify-contract" || argument.empty())
      return;
    if (argument.consume_front("kiln-"))
      file = makeName(argument);
    if (file.empty())
      return;
    std::error_code error;
    llvm::raw_fd_ostream stream(file, error);
    if (!error)
      module.print(stream, OpPrintingFlags().useLocalScope());
  }

private:
  // Threads may be at work on several images: only the first image is written,
  // and its text depends on nothing outside of it.
  static bool isShown(ModuleOp module) {
    auto parent = module->getParentOfType<ModuleOp>();
    return !parent || module == *parent.getOps<ModuleOp>().begin();
  }

  std::string makeName(StringRef pass) {
    std::string name;
    llvm::raw_string_ostream(name)
        << folder << "/" << llvm::format("%02u", ++count) << "-" << pass
        << ".mlir";
    return name;
  }

  std::string folder, file;
  unsigned count = 1; // The model is the first.
};

} // namespace

void dumpAfterPasses(PassManager &manager, const std::string &folder) {
  manager.addInstrumentation(std::make_unique<DumpAfterPasses>(folder));
}

} // namespace kiln
