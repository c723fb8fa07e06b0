// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Compile.h"
#include "compiler/artifact/WriteArtifact.h"
#include "compiler/backend/cpu/GenerateKernels.h"
#include "compiler/frontend/ImportModel.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/kiln/Kiln.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace kiln {

namespace {

/// Turns what is reported on a context while it lives into text.
class DiagnosticText {
public:
  explicit DiagnosticText(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) { add(diagnostic); }) {}

  /// A failure with all that was reported as its message.
  Status fail(Code code, const char *otherwise) const {
    return Status(code, text.empty() ? otherwise : text);
  }

private:
  void add(const Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return;
    llvm::raw_string_ostream stream(text);
    if (!text.empty())
      stream << "\n";
    if (auto place = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>())
      stream << place.getFilename().getValue() << ":" << place.getLine() << ":"
             << place.getColumn() << ": ";
    stream << "error: " << diagnostic.str();
  }

  std::string text;
  ScopedDiagnosticHandler handler;
};

} // namespace

CompileContext::CompileContext() : mlir(MLIRContext::Threading::ENABLED) {
  DialectRegistry registry;
  registerDialects(registry);
  mlir.appendDialectRegistry(registry);
  mlir.loadAllAvailableDialects();
}

// Writes the module as it is after a stage, for people who want to see what the
// compiler does.
static void dump(ModuleOp module, const std::string &folder, StringRef stage) {
  if (folder.empty())
    return;
  std::error_code error;
  llvm::raw_fd_ostream stream((folder + "/" + stage + ".mlir").str(), error);
  if (!error)
    module.print(stream);
}

/// What of the plan can be changed so that a device needs less.
static std::string suggestLess(const Config &config) {
  const DevicesConfig &devices = config.devices;
  std::vector<int64_t> shares = config.shares();
  int64_t share = *std::max_element(shares.begin(), shares.end());
  int64_t micro = config.training.microBatch;
  int64_t least = std::max<int64_t>(1, config.model.statisticsGroup);
  std::vector<std::string> ways;
  if ((micro ? std::min(micro, share) : share) > least)
    ways.push_back("a smaller training.micro_batch");
  if (devices.recompute != Recompute::Full)
    ways.push_back("devices.recompute=full");
  if (devices.offload == Offload::None)
    ways.push_back("devices.offload=optimizer");
  if (devices.mesh.data > 1 && devices.zero < 3)
    ways.push_back("devices.zero=3");
  ways.push_back("more devices along devices.mesh.tensor");
  std::string text;
  for (const std::string &way : ways)
    text += (text.empty() ? "" : ", ") + way;
  return text;
}

static Status checkMemory(ModuleOp module, const Config &config) {
  int64_t arena =
      module->getAttrOfType<IntegerAttr>("exec.arena_bytes").getInt();
  int64_t limit = config.devices.memory;
  if (limit == 0 || arena <= limit)
    return {};
  return Status(Code::noPlan,
                "error: the plan needs " + std::to_string(arena) +
                    " bytes, but devices.memory is " + std::to_string(limit) +
                    ": " + std::to_string(arena - limit) +
                    " too many; less is needed with " + suggestLess(config));
}

static Status compileVerified(ModuleOp module, const Config &config,
                              const CompileOptions &options,
                              const std::string &outputPath,
                              const DiagnosticText &text) {
  dump(module, options.dumpFolder, "1-model");
  options.enter("passes");
  // What a user wrote may ask for what no pass can do; our own models may not.
  auto failPass = [&] {
    return text.fail(config.model.kind == ModelKind::File ? Code::inputRejected
                                                          : Code::internal,
                     "error: a pass failed");
  };
  PassManager step(module.getContext());
  buildStepPipeline(step, config);
  if (failed(step.run(module)))
    return failPass();
  dump(module, options.dumpFolder, "2-step");
  if (options.changeStep)
    options.changeStep(module);
  // Replicas with the same share of the batch run the same image; that of the
  // first is made in place.
  Images images;
  SmallVector<OwningOpRef<ModuleOp>> copies;
  for (int64_t share : config.shares())
    if (images.empty())
      images[share] = module;
    else if (!images.contains(share))
      images[share] = *copies.emplace_back(module.clone());
  SmallVector<ModuleOp> modules;
  for (auto [share, image] : images) {
    modules.push_back(image);
    PassManager manager(module.getContext());
    buildImagePipeline(manager, config, share, options.isReference);
    if (failed(manager.run(image)))
      return failPass();
  }
  dump(modules.front(), options.dumpFolder, "3-exec");
  options.enter("kernels");
  cpu::GenerateOptions generate{cpu::CpuTarget::host(), config.devices.threads,
                                options.isReference};
  FailureOr<std::string> kernels = cpu::generateKernels(modules, generate);
  if (failed(kernels))
    return text.fail(Code::internal, "error: kernels could not be generated");
  options.enter("memory plan");
  for (ModuleOp image : modules) {
    PassManager memory(module.getContext());
    buildMemoryPipeline(memory, options.hasRedZones);
    if (failed(memory.run(image)))
      return text.fail(Code::internal, "error: memory could not be planned");
    if (Status fits = checkMemory(image, config); !fits.ok())
      return fits;
  }
  dump(modules.front(), options.dumpFolder, "4-planned");
  options.enter("artifact");
  Status written =
      writeArtifact(images, *kernels, config, generate.target, outputPath);
  if (!written.ok())
    return Status(written.code(), "error: " + written.message());
  return {};
}

Status compileModule(ModuleOp module, const Config &config,
                     const CompileOptions &options,
                     const std::string &outputPath) {
  DiagnosticText text(module.getContext());
  if (failed(verify(module)))
    return text.fail(Code::inputRejected, "error: the model is not valid");
  return compileVerified(module, config, options, outputPath, text);
}

Status compileConfig(const Config &config, const CompileOptions &options,
                     const std::string &outputPath) {
  options.enter("model");
  CompileContext context;
  OwningOpRef<ModuleOp> module;
  {
    DiagnosticText text(&context.mlir);
    module = importModel(config, context.mlir);
    if (!module)
      return text.fail(Code::inputRejected, "error: the model cannot be read");
  }
  // Only a file can lack one: it may be a module of anything.
  if (llvm::none_of(module->getOps<func::FuncOp>(), [](func::FuncOp function) {
        return function->hasAttr(kLossAttribute);
      }))
    return Status(Code::inputRejected,
                  config.model.path +
                      ": error: found no function with the attribute '" +
                      kLossAttribute.str() + "', wanted the model's loss");
  return compileModule(*module, config, options, outputPath);
}

} // namespace kiln
