// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/CompilerLibrary.h"
#include "compiler/artifact/WriteArtifact.h"
#include "compiler/backend/cpu/GenerateKernels.h"
#include "compiler/frontend/ImportModel.h"
#include "compiler/pipeline/Pipeline.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>

using namespace mlir;

namespace kiln {

namespace {
enum ExitCode { kDone = 0, kUsage = 2, kNoPlan = 3, kRejected = 4, kInternal = 70 };
} // namespace

// Writes the module as it is after a stage, for people who want to see what the compiler does.
static void dump(ModuleOp module, const char *folder, StringRef stage) {
  if (!folder)
    return;
  std::error_code error;
  llvm::raw_fd_ostream stream((Twine(folder) + "/" + stage + ".mlir").str(), error);
  if (!error)
    module.print(stream);
}

static int checkMemory(ModuleOp module, const Config &config) {
  int64_t arena = module->getAttrOfType<IntegerAttr>("exec.arena_bytes").getInt();
  if (config.devices.memory == 0 || arena <= config.devices.memory)
    return kDone;
  llvm::errs() << "error: the plan needs " << arena << " bytes, but devices.memory is "
               << config.devices.memory << ": " << arena - config.devices.memory
               << " too many; a smaller training.micro_batch needs less\n";
  return kNoPlan;
}

static int compile(const Config &config, const KilnCompileRequest &request) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> module = importModel(config, context);
  if (!module || failed(verify(*module)))
    return kRejected;
  dump(*module, request.dumpFolder, "1-model");
  PassManager manager(&context);
  buildPipeline(manager, config, request.isReference);
  if (failed(manager.run(*module)))
    return config.model.kind == ModelKind::File ? kRejected : kInternal;
  dump(*module, request.dumpFolder, "2-exec");
  cpu::GenerateOptions generate{cpu::CpuTarget::host(), config.devices.threads, bool(request.isReference)};
  FailureOr<std::string> kernels = cpu::generateKernels(*module, generate);
  if (failed(kernels))
    return kInternal;
  PassManager memory(&context);
  buildMemoryPipeline(memory);
  if (failed(memory.run(*module)))
    return kInternal;
  dump(*module, request.dumpFolder, "3-planned");
  if (int code = checkMemory(*module, config))
    return code;
  Status written = writeArtifact(*module, *kernels, config, generate.target, request.outputPath);
  if (!written.ok()) {
    llvm::errs() << "error: " << written.message() << "\n";
    return written.exitCode();
  }
  return kDone;
}

} // namespace kiln

int kilnCompile(const KilnCompileRequest *request) {
  if (request->size != sizeof(KilnCompileRequest)) {
    fprintf(stderr, "error: libKilnCompiler and kiln are of different builds; build both again\n");
    return kiln::kInternal;
  }
  kiln::Diagnostics diagnostics;
  std::vector<std::string> overrides(request->overrides, request->overrides + request->overrideCount);
  auto config = kiln::loadConfig(request->configPath, overrides, diagnostics);
  if (!config) {
    fputs(diagnostics.text().c_str(), stderr);
    return kiln::kUsage;
  }
  return kiln::compile(*config, *request);
}
