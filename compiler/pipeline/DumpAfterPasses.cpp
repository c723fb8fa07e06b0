// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/pipeline/Pipeline.h"

#include "mlir/Pass/PassInstrumentation.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"

using namespace mlir;

namespace kiln {

/// A stream that fails ends the process unless its error is taken. Half a file
/// would be read as a whole one.
static Status writeModule(ModuleOp module, const std::string &path,
                          OpPrintingFlags flags) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (!error) {
    module.print(stream, flags);
    stream.close();
    error = stream.error();
    stream.clear_error();
    if (error)
      llvm::sys::fs::remove(path);
  }
  return error ? Status(Code::io, "kiln: error: " + path +
                                      ": cannot write: " + error.message())
               : Status();
}

namespace {

/// Passes that are not Kiln's own clean up behind one that is: its file shows
/// what both have left.
class DumpAfterPasses : public PassInstrumentation {
public:
  DumpAfterPasses(std::string folder, Status &status)
      : folder(std::move(folder)), status(status) {}

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
    if (!file.empty() && status.ok())
      status = writeModule(module, file, OpPrintingFlags().useLocalScope());
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
  Status &status;
  unsigned count = 1; // The model is the first.
};

} // namespace

void dumpAfterPasses(PassManager &manager, ModuleOp module,
                     const std::string &folder, Status &status) {
  status = writeModule(module, folder + "/01-model.mlir", OpPrintingFlags());
  manager.addInstrumentation(std::make_unique<DumpAfterPasses>(folder, status));
}

} // namespace kiln
