// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/CpuBackend.h"
#include "compiler/backend/KernelForm.h"
#include "compiler/backend/cpu/EmitGeneral.h"
#include "compiler/backend/cpu/attention/EmitAttention.h"
#include "compiler/backend/cpu/convolution/EmitConvolution.h"
#include "compiler/backend/cpu/gemm/EmitDotGemm.h"
#include "compiler/backend/cpu/gemm/EmitGemm.h"
#include "compiler/backend/cpu/gemm/EmitHead.h"
#include "compiler/backend/cpu/rows/EmitFused.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <atomic>
#include <thread>

using namespace mlir;

namespace kiln::cpu {

namespace {

//===----------------------------------------------------------------------===//
// One kernel
//===----------------------------------------------------------------------===//

/// A kernel's family with its parameters and stages.
struct ServedKernel {
  StringRef family;
  TuningRecord tuning;
  StagePlan stages;
};

/// Serves one kernel: plans it and, given a module, writes its code there. Both
/// go through the same choice of family and the same parameters.
class KernelServer {
public:
  KernelServer(exec::KernelOp kernel, const TuningRecord &record,
               const CpuTarget &target, ModuleOp module)
      : kernel(kernel), symbol(kernel.getSymName()),
        body(kernel.getBody().front()), record(record), target(target),
        module(module) {}

  FailureOr<ServedKernel> operator()(const PlainForm &) {
    return serve(
        "general", GeneralTuning(),
        [&](auto &tuning) { return planGeneral(symbol, body, tuning); },
        [&](auto &tuning) {
          return emitGeneral(module, symbol, body, tuning);
        });
  }
  FailureOr<ServedKernel> operator()(const RowsForm &form) {
    return serve(
        "rows", FusedTuning(),
        [&](auto &tuning) {
          return planFused(symbol, body, form.domain, target, tuning);
        },
        [&](auto &tuning) {
          return emitFused(module, symbol, body, form.domain, target, tuning);
        });
  }
  FailureOr<ServedKernel> operator()(const MatrixProduct &product) {
    return serveGemm({product.m, product.n, product.k, product.aRowStride,
                      product.aColumnStride, product.bRowStride,
                      product.bColumnStride, /*cRowStride=*/product.n,
                      product.types});
  }
  FailureOr<ServedKernel> operator()(const AttentionForm &form) {
    if (form.isGradient)
      return serveShape("attention_gradient", AttentionGradientTuning(),
                        planAttentionGradient, emitAttentionGradient,
                        form.shape);
    return serveShape("attention", AttentionTuning(), planAttention,
                      emitAttention, form.shape);
  }
  FailureOr<ServedKernel> operator()(const HeadForm &form) {
    return serveShape("head", HeadTuning(), planHead, emitHead, form.shape);
  }
  FailureOr<ServedKernel> operator()(const ConvolutionForm &form) {
    if (auto product = asMatrixProduct(form))
      return serveGemm(*product);
    switch (form.computes) {
    case ConvolutionSide::result:
      return serveShape("convolution", ConvolutionTuning(), planConvolution,
                        emitConvolution, form.shape);
    case ConvolutionSide::image:
      return serveShape("convolution", ConvolutionTuning(),
                        planConvolutionGradInput, emitConvolutionGradInput,
                        form.shape);
    case ConvolutionSide::filter:
      return serveShape("filter_gradient", FilterGradientTuning(),
                        planConvolutionGradWeight, emitConvolutionGradWeight,
                        form.shape);
    }
    llvm_unreachable("a side of a convolution");
  }
  FailureOr<ServedKernel> operator()(const PoolForm &form) {
    return serveShape("max_pool", PoolTuning(),
                      form.isGradient ? planMaxPoolGradient : planMaxPool,
                      form.isGradient ? emitMaxPoolGradient : emitMaxPool,
                      form.shape);
  }

private:
  FailureOr<ServedKernel> serveGemm(const GemmShape &shape) {
    if (findDotUnit(target, shape.types.operands) != DotUnit::none)
      return serve(
          "dot_gemm", DotGemmTuning(),
          [&](auto &tuning) {
            return planDotGemm(symbol, shape, target, tuning);
          },
          [&](auto &tuning) {
            return emitDotGemm(module, symbol, shape, target, tuning);
          });
    return serve(
        "gemm", GemmTuning(target),
        [&](auto &tuning) { return planGemm(symbol, shape, target, tuning); },
        [&](auto &tuning) {
          return emitGemm(module, symbol, shape, target, tuning);
        });
  }

  template <typename Tuning, typename Shape>
  FailureOr<ServedKernel>
  serveShape(StringRef family, const Tuning &defaults,
             StagePlan (*plan)(StringRef, const Shape &, const CpuTarget &,
                               const Tuning &),
             StagePlan (*emit)(ModuleOp, StringRef, const Shape &,
                               const CpuTarget &, const Tuning &),
             const Shape &shape) {
    return serve(
        family, defaults,
        [&](auto &tuning) { return plan(symbol, shape, target, tuning); },
        [&](auto &tuning) {
          return emit(module, symbol, shape, target, tuning);
        });
  }

  template <typename Tuning, typename Plan, typename Emit>
  FailureOr<ServedKernel> serve(StringRef family, Tuning tuning, Plan plan,
                                Emit emit) {
    if (auto unknown = applyRecord(record, tuning))
      return kernel.emitOpError("has tuning parameter '")
             << *unknown << "', which kernels of the family '" << family
             << "' do not have; they have " << printTuning(toRecord(tuning));
    FailureOr<StagePlan> stages = module ? emit(tuning) : plan(tuning);
    if (failed(stages))
      return failure();
    return ServedKernel{family, toRecord(tuning), std::move(*stages)};
  }

  exec::KernelOp kernel;
  StringRef symbol;
  Block &body;
  const TuningRecord &record;
  const CpuTarget &target;
  ModuleOp module;
};

//===----------------------------------------------------------------------===//
// The backend
//===----------------------------------------------------------------------===//

class CpuBackend : public Backend {
public:
  explicit CpuBackend(const BackendOptions &options)
      : options(options), target(CpuTarget::host()) {}

  StringRef getName() const override { return "cpu"; }
  bool hasJointForm(Operation *op) const override {
    return !options.isReference && findJointForm(op);
  }
  FusionLimits getFusionLimits() const override {
    constexpr size_t kMostOps = 160;
    return {options.isReference ? 1 : kMostOps};
  }
  // A cache line: neighbours never share one.
  int64_t getBufferAlignment() const override { return 64; }
  bool hasSeparateMemory() const override { return false; }
  bool needsContiguousCollectives() const override { return false; }
  TargetFacts getTarget() const override {
    return {target.name, target.features};
  }

  FailureOr<KernelPlan> plan(exec::KernelOp kernel,
                             const TuningRecord &tuning) const override;
  void prepare(MLIRContext &context) const override {
    loadLoweringDialects(context);
  }
  FailureOr<GeneratedCode> generate(ArrayRef<exec::KernelOp> kernels,
                                    CodeStore *store) const override;

private:
  FailureOr<ServedKernel> serve(exec::KernelOp kernel,
                                const TuningRecord &tuning,
                                ModuleOp module) const;
  std::string getKey(exec::KernelOp kernel) const;
  std::optional<std::string> compile(exec::KernelOp kernel) const;
  std::vector<std::optional<std::string>>
  compileAll(ArrayRef<exec::KernelOp> kernels) const;

  BackendOptions options;
  CpuTarget target;
};

} // namespace

FailureOr<ServedKernel> CpuBackend::serve(exec::KernelOp kernel,
                                          const TuningRecord &tuning,
                                          ModuleOp module) const {
  KernelServer server(kernel, tuning, target, module);
  if (options.isReference)
    return server(PlainForm{&kernel.getBody().front().front()});
  FailureOr<KernelForm> form = getKernelForm(kernel);
  if (failed(form))
    return failure();
  return std::visit(server, *form);
}

FailureOr<KernelPlan> CpuBackend::plan(exec::KernelOp kernel,
                                       const TuningRecord &tuning) const {
  FailureOr<ServedKernel> served = serve(kernel, tuning, ModuleOp());
  if (failed(served))
    return failure();
  return KernelPlan{served->family.str(), served->tuning, served->stages.stages,
                    served->stages.sharedScratchBytes +
                        served->stages.scratchBytesPerWorker * options.workers};
}

// All that the object of a kernel depends on beside the compiler itself. The
// name of a kernel is the hash of its body.
std::string CpuBackend::getKey(exec::KernelOp kernel) const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << (options.isReference ? "reference" : "optimised") << "\n"
         << target.describe() << "\n";
  if (auto tuning = kernel.getTuning())
    stream << printTuning(toTuning(*tuning)) << "\n";
  kernel->print(stream, OpPrintingFlags().useLocalScope());
  return text;
}

std::optional<std::string> CpuBackend::compile(exec::KernelOp kernel) const {
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(kernel.getContext()));
  FailureOr<ServedKernel> served =
      serve(kernel, toTuning(*kernel.getTuning()), *module);
  if (failed(served))
    return std::nullopt;
  if (failed(verify(*module))) {
    kernel.emitError("the code generator made invalid code");
    return std::nullopt;
  }
  SmallVector<std::string> made;
  for (auto function : module->getOps<func::FuncOp>())
    if (isStage(function))
      made.push_back(function.getSymName().str());
  SmallVector<std::string> planned;
  for (const KernelStage &stage : getStages(kernel))
    planned.push_back(stage.symbol);
  llvm::sort(made);
  llvm::sort(planned);
  if (made != planned) {
    kernel.emitError("has the stages ")
        << llvm::join(made, ", ") << "; planned were "
        << llvm::join(planned, ", ");
    return std::nullopt;
  }
  FailureOr<std::string> object =
      compileObject(*module, target, options.isReference);
  if (failed(object))
    return std::nullopt;
  return std::move(*object);
}

// Kernels are independent of each other: as many threads as there are cores, at
// most 8, take the next one from a counter. Results are kept by index, so that
// the artifact does not depend on the order of finishing.
std::vector<std::optional<std::string>>
CpuBackend::compileAll(ArrayRef<exec::KernelOp> kernels) const {
  std::vector<std::optional<std::string>> objects(kernels.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t index = next++; index < kernels.size(); index = next++)
      objects[index] = compile(kernels[index]);
  };
  std::vector<std::thread> threads;
  unsigned cores = std::thread::hardware_concurrency();
  for (unsigned extra = 1; extra < std::min(cores, 8u); ++extra)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  return objects;
}

FailureOr<GeneratedCode> CpuBackend::generate(ArrayRef<exec::KernelOp> kernels,
                                              CodeStore *store) const {
  GeneratedCode code;
  if (kernels.empty())
    return code;
  std::vector<std::string> keys(kernels.size()), objects(kernels.size());
  SmallVector<exec::KernelOp> missing;
  SmallVector<size_t> numbers;
  for (auto [number, kernel] : llvm::enumerate(kernels)) {
    if (store) {
      keys[number] = getKey(kernel);
      if (auto object = store->lookUp(keys[number])) {
        objects[number] = std::move(*object);
        continue;
      }
    }
    missing.push_back(kernel);
    numbers.push_back(number);
  }
  std::vector<std::optional<std::string>> compiled = compileAll(missing);
  for (auto [number, object] : llvm::zip_equal(numbers, compiled)) {
    if (!object)
      return kernels[number]->emitError("could not be compiled");
    objects[number] = std::move(*object);
    if (store)
      store->publish(keys[number], objects[number]);
  }
  Expected<std::string> library = linkObjects(objects);
  if (!library.ok()) {
    code.status = library.status();
    return code;
  }
  code.sections.push_back({"kernels.cpu", std::move(*library)});
  for (exec::KernelOp kernel : kernels)
    code.stages.push_back(getStages(kernel));
  return code;
}

std::unique_ptr<Backend> createBackend(const BackendOptions &options) {
  return std::make_unique<CpuBackend>(options);
}

} // namespace kiln::cpu
