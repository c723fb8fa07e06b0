// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Compile.h"
#include "compiler/artifact/DescribeModel.h"
#include "compiler/artifact/MemoryKinds.h"
#include "compiler/artifact/WriteArtifact.h"
#include "compiler/backend/KernelCache.h"
#include "compiler/config/PrintBytes.h"
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

/// Collects a context's diagnostics as text during its lifetime.
class DiagnosticText {
public:
  explicit DiagnosticText(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) { add(diagnostic); }) {}

  /// A failure with all diagnostics as its message.
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

/// Changes to the plan that reduce the memory of a device.
static std::string suggestLess(const Config &config, const Plan &plan) {
  std::vector<int64_t> shares = plan.shares(config);
  int64_t share = *std::max_element(shares.begin(), shares.end());
  int64_t least = std::max<int64_t>(1, config.model.statisticsGroup);
  const PrecisionPolicy &precision = config.training.precision;
  std::vector<std::string> ways;
  // Sums of gradients may have 16 bits, but not by themselves.
  if (plan.accumulation(share) > 1 && precision.gradients == FloatFormat::F32 &&
      precision.messages != FloatFormat::F32)
    ways.push_back("gradients: " + std::string(wordOf(precision.messages)) +
                   " in training.precision");
  if (plan.microBatchSize(share) > least)
    ways.push_back("a smaller training.micro_batch");
  if (plan.recompute != Recompute::Full)
    ways.push_back("devices.recompute=full");
  if (plan.offload == Offload::None)
    ways.push_back("devices.offload=optimizer");
  if (plan.mesh.data > 1 && plan.zero < maximumZeroStage)
    ways.push_back("devices.zero=3");
  ways.push_back("more devices along devices.mesh.tensor");
  std::string text;
  for (const std::string &way : ways)
    text += (text.empty() ? "" : ", ") + way;
  return text;
}

/// The backend that plans and generates the kernels of the devices.
static const char *getBackendName(const Config &config) {
  switch (config.devices.kind) {
  case DeviceKind::Cpu:
  case DeviceKind::Dry: // Planned like the CPU; no code is generated.
    return "cpu";
  }
  llvm_unreachable("a kind of device");
}

// The kinds that take most, down to a twentieth of all.
static std::string describeMemory(ModuleOp image, int64_t arena,
                                  const Backends &backends) {
  SmallVector<MemoryKind> kinds = listMemory(image, backends, /*isHost=*/false);
  llvm::sort(kinds, [](const MemoryKind &a, const MemoryKind &b) {
    return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
  });
  std::string text;
  for (const MemoryKind &kind : kinds)
    if (kind.bytes * 20 >= uint64_t(arena))
      text += (text.empty() ? "" : ", ") + printBytes(kind.bytes) + " of " +
              kind.name.str();
  return text;
}

static Status checkMemory(ModuleOp module, const Config &config,
                          const Plan &plan, const Backends &backends) {
  int64_t arena =
      module->getAttrOfType<IntegerAttr>("exec.arena_bytes").getInt();
  int64_t limit = config.devices.memory;
  if (limit == 0 || arena <= limit)
    return {};
  return Status(Code::noPlan,
                "kiln: error: the plan needs " + std::to_string(arena) +
                    " bytes, but devices.memory is " + std::to_string(limit) +
                    ": " + std::to_string(arena - limit) + " too many (" +
                    describeMemory(module, arena, backends) +
                    "); less is needed with " + suggestLess(config, plan));
}

// Dry devices run no code: their artifact names the backend it was planned for.
static LogicalResult generateCode(ModuleOp module, const Config &config,
                                  const CompileOptions &options,
                                  const Backends &backends, ProgramCode &code) {
  if (config.devices.kind == DeviceKind::Dry) {
    for (const Backend *backend : backends.getAll())
      code.targets.push_back(
          {backend->getName().str(), backend->getTarget(), {}});
    return success();
  }
  std::optional<KernelCache> cache;
  if (!options.cacheFolder.empty())
    cache.emplace(options.cacheFolder);
  PassManager generate(module.getContext());
  buildCodePipeline(generate, backends, cache ? &*cache : nullptr, code);
  return generate.run(module);
}

static Status compileVerified(ModuleOp module, const Config &config,
                              const CompileOptions &options,
                              const std::string &outputPath,
                              const DiagnosticText &text) {
  std::string device = options.deviceBackend.empty() ? getBackendName(config)
                                                     : options.deviceBackend;
  std::unique_ptr<Backends> backends = Backends::create(
      options.backends, device, {config.devices.threads, options.isReference});
  if (!backends)
    return Status(Code::usage,
                  "kiln: error: this compiler has no backend '" + device + "'");
  options.enter("passes");
  Plan plan = resolvePlan(config);
  Status dumped;
  PassManager passes(module.getContext());
  passes.enableVerifier(false); // Contracts verify.
  buildPlanPipeline(passes, config, plan, *backends,
                    {options.changeStep, options.hasRedZones});
  if (!options.dumpFolder.empty())
    dumpAfterPasses(passes, module, options.dumpFolder, dumped);
  // A user's model may need what no pass supports; our own models may not.
  if (failed(passes.run(module)))
    return text.fail(config.model.kind == ModelKind::File ? Code::inputRejected
                                                          : Code::internal,
                     "kiln: error: a pass failed");
  if (!dumped.ok())
    return dumped;
  for (ModuleOp image : getImages(module))
    if (Status fits = checkMemory(image, config, plan, *backends); !fits.ok())
      return fits;
  options.enter("kernels");
  std::string name =
      options.outputName.empty() ? outputPath : options.outputName;
  ProgramCode code;
  if (failed(generateCode(module, config, options, *backends, code)))
    return code.status.ok()
               ? text.fail(Code::internal,
                           "kiln: error: kernels could not be generated")
               : Status(code.status.code(),
                        "kiln: error: " + name + ": " + code.status.message());
  options.enter("artifact");
  Status written = writeArtifact(getImages(module), code, config, plan,
                                 *backends, outputPath, name);
  if (!written.ok())
    return Status(written.code(), "kiln: error: " + written.message());
  return {};
}

Status compileModule(ModuleOp module, const Config &config,
                     const CompileOptions &options,
                     const std::string &outputPath) {
  DiagnosticText text(module.getContext());
  if (failed(verify(module)))
    return text.fail(Code::inputRejected,
                     "kiln: error: the model is not valid");
  if (options.checkModel) {
    flatbuffers::DetachedBuffer model = describeModel(module, config);
    std::string fault = options.checkModel({model.data(), model.size()});
    if (!fault.empty())
      return Status(Code::inputRejected, fault);
  }
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
      return text.fail(Code::inputRejected,
                       "kiln: error: the model cannot be read");
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
