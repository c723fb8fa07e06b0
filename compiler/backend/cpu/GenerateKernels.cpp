// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/GenerateKernels.h"
#include "compiler/backend/cpu/attention/EmitAttention.h"
#include "compiler/backend/cpu/convolution/EmitConvolution.h"
#include "compiler/backend/cpu/rows/EmitFused.h"
#include "compiler/backend/cpu/gemm/EmitGemm.h"
#include "compiler/backend/cpu/EmitGeneral.h"
#include "compiler/backend/cpu/gemm/EmitHead.h"
#include "compiler/lower/Contraction.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Composer.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/TypeSwitch.h"

#include <atomic>
#include <thread>

using namespace mlir;

namespace kiln::cpu {

//===----------------------------------------------------------------------===//
// Which emitter serves a kernel
//===----------------------------------------------------------------------===//

static std::optional<KernelCode> emitContraction(ModuleOp module,
                                                 StringRef symbol,
                                                 ContractOp op,
                                                 const CpuTarget &target) {
  std::optional<MatrixProduct> product = asMatrixProduct(op);
  auto body = op->getBlock();
  bool isDirect = body->getNumArguments() == 2 &&
                  op.getLhs() == body->getArgument(0) &&
                  op.getRhs() == body->getArgument(1);
  if (!product || !isDirect)
    return std::nullopt;
  GemmShape shape;
  shape.m = product->m;
  shape.n = product->n;
  shape.k = product->k;
  shape.aRowStride = product->aRowStride;
  shape.aColumnStride = product->aColumnStride;
  shape.bRowStride = product->bRowStride;
  shape.bColumnStride = product->bColumnStride;
  shape.cRowStride = product->n;
  shape.elementType = tensorType(op.getLhs()).getElementType();
  return emitGemm(module, symbol, shape, target);
}

template <typename Attention> static AttentionShape getShape(Attention op) {
  RankedTensorType packed = tensorType(op.getPacked());
  ArrayRef<int64_t> sizes = packed.getShape();
  return {sizes[0],
          sizes[1],
          sizes[3],
          sizes[4],
          op.getCausal(),
          bool(op.getLengths()),
          op.getScale().convertToDouble(),
          packed.getElementType()};
}

template <typename Op>
static ConvolutionShape getShape(Op op, Value image, Value filter,
                                 Value result) {
  RankedTensorType images = tensorType(image), weights = tensorType(filter);
  return {
      images.getDimSize(0),
      Windows::get(images, tensorType(result), weights.getShape().drop_front(2),
                   op.getStrides(), op.getPadding()),
      weights.getDimSize(1), weights.getDimSize(0), images.getElementType()};
}

template <typename Pool> static PoolShape getPoolShape(Pool op) {
  RankedTensorType images = tensorType(op.getImage());
  return {images.getDimSize(0),
          Windows::get(images, tensorType(op.getResult()), op.getWindow(),
                       op.getStrides(), op.getPadding()),
          images.getDimSize(3), images.getElementType()};
}

// An op that is a kernel by itself and has an emitter of its own.
static std::optional<KernelCode> emitWhole(ModuleOp module, StringRef symbol,
                                           Operation *op,
                                           const CpuTarget &target) {
  return llvm::TypeSwitch<Operation *, std::optional<KernelCode>>(op)
      .Case([&](ContractOp op) {
        return emitContraction(module, symbol, op, target);
      })
      .Case([&](AttentionOp op) {
        return emitAttention(module, symbol, getShape(op), target);
      })
      .Case([&](AttentionGradOp op) {
        return emitAttentionGradient(module, symbol, getShape(op), target);
      })
      .Case([&](HeadLossOp op) {
        RankedTensorType weight = tensorType(op.getWeight());
        HeadShape shape;
        shape.tokens = tensorType(op.getLabels()).getNumElements();
        shape.width = weight.getDimSize(1);
        shape.vocabulary = weight.getDimSize(0);
        shape.elementType = weight.getElementType();
        shape.gradients = op.hasGradients();
        return emitHead(module, symbol, shape, target);
      })
      .Case([&](ConvolutionOp op) {
        auto shape =
            getShape(op, op.getImage(), op.getFilter(), op.getResult());
        return emitConvolution(module, symbol, shape, target);
      })
      .Case([&](ConvolutionGradInputOp op) {
        auto shape = getShape(op, op.getResult(), op.getFilter(), op.getGrad());
        return emitConvolutionGradInput(module, symbol, shape, target);
      })
      .Case([&](ConvolutionGradWeightOp op) {
        auto shape = getShape(op, op.getImage(), op.getResult(), op.getGrad());
        return emitConvolutionGradWeight(module, symbol, shape, target);
      })
      .Case([&](MaxPoolOp op) {
        return emitMaxPool(module, symbol, getPoolShape(op), target);
      })
      .Case([&](MaxPoolGradOp op) {
        return emitMaxPoolGradient(module, symbol, getPoolShape(op), target);
      })
      .Default([](Operation *) { return std::nullopt; });
}

static FailureOr<KernelCode> emitKernel(ModuleOp module, exec::KernelOp kernel,
                                        const GenerateOptions &options) {
  Block &body = kernel.getBody().front();
  StringRef symbol = kernel.getSymName();
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  if (options.isReference)
    return emitGeneral(module, symbol, body);
  if (ops.size() == 1)
    if (auto code = emitWhole(module, symbol, ops.front(), options.target))
      return *code;
  if (llvm::all_of(ops, isFusable))
    if (auto domain = KernelDomain::analyse(ops))
      return emitFused(module, symbol, body, *domain, options.target);
  return emitGeneral(module, symbol, body);
}

//===----------------------------------------------------------------------===//
// All kernels
//===----------------------------------------------------------------------===//

namespace {
struct Result {
  KernelCode code;
  std::string object;
  bool isDone = false;
};
} // namespace

static void generateOne(exec::KernelOp kernel, const GenerateOptions &options,
                        Result &result) {
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(UnknownLoc::get(kernel.getContext()));
  FailureOr<KernelCode> code = emitKernel(*module, kernel, options);
  if (failed(code))
    return;
  if (failed(verify(*module))) {
    kernel.emitError("the code generator made invalid code");
    return;
  }
  FailureOr<std::string> object =
      compileObject(*module, options.target, options.isReference);
  if (failed(object))
    return;
  result = {std::move(*code), std::move(*object), true};
}

// Kernels are independent of each other: as many threads as there are cores
// take the next one from a counter. Results are kept by number, so that the
// order of finishing does not show in the artifact.
static std::vector<Result> generateAll(ArrayRef<exec::KernelOp> kernels,
                                       const GenerateOptions &options) {
  std::vector<Result> results(kernels.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t index = next++; index < kernels.size(); index = next++)
      generateOne(kernels[index], options, results[index]);
  };
  std::vector<std::thread> threads;
  unsigned cores = std::thread::hardware_concurrency();
  for (unsigned extra = 1; extra < std::min(cores, 8u); ++extra)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

static void record(exec::KernelOp kernel, const KernelCode &code,
                   int64_t workers) {
  OpBuilder builder(kernel);
  SmallVector<StringRef> symbols;
  SmallVector<int64_t> items;
  for (const KernelStage &stage : code.stages) {
    symbols.push_back(stage.symbol);
    items.push_back(stage.items);
  }
  kernel.setStagesAttr(builder.getStrArrayAttr(symbols));
  kernel.setItems(items);
  kernel.setScratchBytes(code.sharedScratchBytes +
                         code.scratchBytesPerWorker * workers);
}

static void addScratch(exec::LaunchOp launch, exec::KernelOp kernel,
                       SymbolTable &symbols, unsigned number) {
  if (kernel.getScratchBytes() == 0)
    return;
  OpBuilder builder(launch);
  SmallVector<Attribute> names(launch.getBuffers().getValue());
  SmallVector<int64_t> offsets(launch.getOffsets()),
      strides(launch.getStrides());
  OpBuilder declarations =
      OpBuilder::atBlockEnd(launch->getParentOfType<ModuleOp>().getBody());
  // Where the kernel runs, all its buffers lie.
  auto first = symbols.lookup<exec::BufferOp>(
      cast<FlatSymbolRefAttr>(names.front()).getValue());
  auto buffer = exec::BufferOp::create(
      declarations, launch.getLoc(), "scratch." + std::to_string(number),
      kernel.getScratchBytes(), exec::BufferKind::scratch,
      /*always_live=*/false, first.getHost(), nullptr);
  symbols.insert(buffer);
  names.push_back(FlatSymbolRefAttr::get(buffer));
  offsets.push_back(0);
  strides.push_back(0);
  launch.setBuffersAttr(builder.getArrayAttr(names));
  launch.setOffsets(offsets);
  launch.setStrides(strides);
}

FailureOr<std::string> generateKernels(ArrayRef<ModuleOp> modules,
                                       const GenerateOptions &options) {
  ModuleOp first = modules.front();
  loadLoweringDialects(*first.getContext());
  // A name tells the body, so that one of each name stands for all.
  SmallVector<exec::KernelOp> kernels;
  llvm::StringMap<unsigned> numbers;
  for (ModuleOp module : modules)
    for (auto kernel : module.getOps<exec::KernelOp>())
      if (numbers.try_emplace(kernel.getSymName(), kernels.size()).second)
        kernels.push_back(kernel);
  std::vector<Result> results = generateAll(kernels, options);
  std::vector<std::string> objects;
  for (auto [index, kernel] : llvm::enumerate(kernels)) {
    if (!results[index].isDone)
      return kernel.emitError("could not be compiled");
    objects.push_back(std::move(results[index].object));
  }
  for (ModuleOp module : modules) {
    SymbolTable symbols(module);
    for (auto kernel : module.getOps<exec::KernelOp>())
      record(kernel, results[numbers.lookup(kernel.getSymName())].code,
             options.workers);
    unsigned number = 0;
    module.walk([&](exec::LaunchOp launch) {
      addScratch(launch, symbols.lookup<exec::KernelOp>(launch.getKernel()),
                 symbols, number++);
    });
  }
  std::string error;
  FailureOr<std::string> library = linkObjects(objects, error);
  if (failed(library))
    return first.emitError(error);
  return library;
}

} // namespace kiln::cpu
