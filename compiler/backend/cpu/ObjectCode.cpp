// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/ObjectCode.h"
#include "compiler/backend/cpu/ExpandConversions.h"
#include "compiler/backend/cpu/MoveBfloatsAsIntegers.h"
#include "runtime/TemporaryFiles.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Approximation.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

#include <mutex>
#include <span>

using namespace mlir;

namespace kiln::cpu {

static constexpr StringLiteral kStageAttribute = "kiln.stage";
static constexpr StringLiteral kVectorisedAttribute = "kiln.vectorised";

func::FuncOp createStage(ModuleOp module, StringRef symbol, TypeRange buffers) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  SmallVector<Type> arguments(buffers.begin(), buffers.end());
  arguments.append(3, builder.getIndexType());
  auto function = func::FuncOp::create(builder, module.getLoc(), symbol,
                                       builder.getFunctionType(arguments, {}));
  function->setAttr(kStageAttribute, builder.getUnitAttr());
  function.addEntryBlock();
  return function;
}

bool isStage(func::FuncOp function) {
  return function->hasAttr(kStageAttribute);
}

void markVectorised(func::FuncOp function) {
  function->setAttr(kVectorisedAttribute, UnitAttr::get(function.getContext()));
}

StageRange getRange(func::FuncOp stage) {
  auto arguments = stage.getArguments();
  size_t count = arguments.size();
  return {arguments[count - 3], arguments[count - 2], arguments[count - 1]};
}

// Every vector operation that has a polynomial gets it: one call of scalar libm
// in a loop costs more than the rest of most kernels.
static LogicalResult expand(ModuleOp module, const CpuTarget &target,
                            bool preciseMath) {
  RewritePatternSet patterns(module.getContext());
  if (!preciseMath)
    populateMathPolynomialApproximationPatterns(patterns);
  addConversionPatterns(patterns, target);
  return applyPatternsGreedily(module, std::move(patterns));
}

static void buildLowering(PassManager &manager) {
  manager.enableVerifier(false);
  manager.addPass(createConvertLinalgToLoopsPass());
  manager.addNestedPass<func::FuncOp>(createConvertVectorToSCFPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addNestedPass<func::FuncOp>(createLoopInvariantCodeMotionPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  manager.addPass(arith::createArithExpandOpsPass());
  ConvertVectorToLLVMPassOptions vectorOptions;
  vectorOptions.reassociateFPReductions = true;
  manager.addPass(createConvertVectorToLLVMPass(vectorOptions));
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createConvertMathToLibmPass());
  manager.addPass(createFinalizeMemRefToLLVMConversionPass());
  ConvertFuncToLLVMPassOptions functionOptions;
  functionOptions.useBarePtrCallConv = true;
  manager.addPass(createConvertFuncToLLVMPass(functionOptions));
  manager.addPass(createConvertVectorToLLVMPass(vectorOptions));
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createUBToLLVMConversionPass());
  manager.addPass(createConvertIndexToLLVMPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
}

void loadLoweringDialects(MLIRContext &context) {
  context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                      math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                      vector::VectorDialect>();
  PassManager manager(&context);
  buildLowering(manager);
  DialectRegistry registry;
  manager.getDependentDialects(registry);
  context.appendDialectRegistry(registry);
  for (StringRef name : registry.getDialectNames())
    context.getOrLoadDialect(name);
}

static LogicalResult
lowerToLlvmDialect(ModuleOp module, const CpuTarget &target, bool preciseMath) {
  bool isMove = onlyMovesBfloats(module);
  if (failed(expand(module, target, preciseMath)))
    return failure();
  PassManager manager(module.getContext());
  buildLowering(manager);
  if (failed(manager.run(module)))
    return failure();
  return isMove ? moveBfloatsAsIntegers(module) : success();
}

// The lowered function takes one pointer per buffer. The runtime cannot call
// that without knowing the count, so each stage gets an exported trampoline
// that reads the pointers from an array.
static void addTrampoline(LLVM::LLVMFuncOp body) {
  OpBuilder builder(body);
  Location loc = body.getLoc();
  std::string symbol = body.getSymName().str();
  body.setSymName(symbol + "_body");
  body.setLinkage(LLVM::Linkage::Internal);
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Type i64 = builder.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(builder.getContext()), {pointer, i64, i64, i64});
  auto trampoline = LLVM::LLVMFuncOp::create(builder, loc, symbol, type);
  trampoline->setAttr("passthrough", body->getAttr("passthrough"));
  Block *block = trampoline.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  SmallVector<Value> arguments;
  unsigned buffers = body.getNumArguments() - 3;
  for (unsigned index = 0; index < buffers; ++index) {
    Value slot = LLVM::GEPOp::create(builder, loc, pointer, pointer,
                                     block->getArgument(0),
                                     ArrayRef<LLVM::GEPArg>{int32_t(index)});
    arguments.push_back(LLVM::LoadOp::create(builder, loc, pointer, slot));
  }
  for (unsigned index = 1; index <= 3; ++index)
    arguments.push_back(block->getArgument(index));
  LLVM::CallOp::create(builder, loc, body, arguments);
  LLVM::ReturnOp::create(builder, loc, ValueRange{});
}

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(const CpuTarget &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target *machine =
      llvm::TargetRegistry::lookupTarget(triple, error);
  llvm::TargetOptions options;
  // Multiplications and additions are fused only where kernels say so:
  // otherwise results would depend on which ops are fused, and so on
  // recomputation.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(machine->createTargetMachine(
      triple, target.name, target.features, options, llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Default));
}

static void optimise(llvm::Module &module, llvm::TargetMachine &machine,
                     bool isVectorised, bool isReference) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  if (isReference) {
    // The reference need not be fast, and LLVM 22's loop vectoriser takes time
    // exponential in the length of an unrolled chain of maxima.
    tuning.LoopUnrolling = false;
    tuning.LoopVectorization = false;
    tuning.SLPVectorization = false;
  }
  llvm::PassBuilder passes(&machine, tuning);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(graphs);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::ModulePassManager pipeline;
  if (!isVectorised)
    pipeline =
        passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
  else
    llvm::cantFail(passes.parsePassPipeline(
        pipeline, "function(sroa,early-cse<memssa>,"
                  "instcombine<no-verify-fixpoint>,loop-mssa(licm),simplifycfg,"
                  "instcombine<no-verify-fixpoint>)"));
  pipeline.run(module, modules);
}

FailureOr<std::string> compileObject(ModuleOp module, const CpuTarget &target,
                                     bool preciseMath) {
  auto passthrough = [&](MLIRContext *context) -> Attribute {
    auto pair = [&](StringRef key, StringRef value) -> Attribute {
      return ArrayAttr::get(context, {StringAttr::get(context, key),
                                      StringAttr::get(context, value)});
    };
    return ArrayAttr::get(
        context,
        {pair("target-cpu", target.name),
         pair("target-features", target.features),
         pair("prefer-vector-width", std::to_string(target.vectorBytes * 8))});
  }(module.getContext());
  for (auto function : module.getOps<func::FuncOp>())
    function->setAttr("passthrough", passthrough);
  bool isVectorised =
      llvm::all_of(module.getOps<func::FuncOp>(), [](func::FuncOp function) {
        return function->hasAttr(kVectorisedAttribute);
      });
  if (failed(lowerToLlvmDialect(module, target, preciseMath)))
    return failure();
  SmallVector<LLVM::LLVMFuncOp> stages;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (function->hasAttr(kStageAttribute))
      stages.push_back(function);
  for (LLVM::LLVMFuncOp stage : stages) {
    stage->removeAttr(kStageAttribute);
    addTrampoline(stage);
  }

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, context, "kernels");
  if (!code)
    return failure();
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(target);
  code->setDataLayout(machine->createDataLayout());
  code->setTargetTriple(machine->getTargetTriple());
  optimise(*code, *machine, isVectorised, /*isReference=*/preciseMath);

  llvm::SmallVector<char> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager emitter;
  if (machine->addPassesToEmitFile(emitter, stream, nullptr,
                                   llvm::CodeGenFileType::ObjectFile))
    return failure();
  emitter.run(*code);
  return std::string(object.begin(), object.end());
}

/// All objects in one archive, so that linking them needs one descriptor.
static Status writeArchive(ArrayRef<std::string> objects, MemoryFile &file) {
  std::vector<std::string> names;
  for (size_t number = 0; number < objects.size(); ++number)
    names.push_back(std::to_string(number) + ".o");
  std::vector<llvm::NewArchiveMember> members;
  for (auto [object, name] : llvm::zip_equal(objects, names))
    members.emplace_back(llvm::MemoryBufferRef(object, name));
  auto archive = llvm::writeArchiveToBuffer(
      members, llvm::SymtabWritingMode::NoSymtab, llvm::object::Archive::K_GNU,
      /*Deterministic=*/true, /*Thin=*/false);
  if (!archive)
    return Status(Code::internal, llvm::toString(archive.takeError()));
  int error = file.write(std::as_bytes(std::span((*archive)->getBuffer())));
  return error ? Status(Code::io, "cannot hold the kernels in memory: " +
                                      std::string(strerror(error)))
               : Status();
}

/// Libraries by name, so that the artifact does not depend on their paths.
static SmallVector<std::string> findLibraries() {
  SmallVector<std::string> found;
  for (const char *name : {"libm.so.6", "libc.so.6"})
    for (const char *place :
         {"/lib/x86_64-linux-gnu/", "/usr/lib64/", "/lib64/"})
      if (llvm::sys::fs::exists(std::string(place) + name)) {
        found.push_back(std::string(place) + name);
        break;
      }
  return found;
}

Expected<std::string> linkObjects(ArrayRef<std::string> objects) {
  auto linker = llvm::sys::findProgramByName("ld.lld-22");
  if (!linker)
    linker = llvm::sys::findProgramByName("ld.lld");
  if (!linker)
    return Status(Code::failed, "found no ld.lld-22 on PATH; run ./dev setup");
  MemoryFile archive("kiln-objects"), library("kiln-kernels");
  if (!archive.isOpen() || !library.isOpen())
    return Status(Code::failed, "the system refuses files in memory");
  if (Status status = writeArchive(objects, archive); !status.ok())
    return status;
  SmallVector<std::string> arguments = {*linker,
                                        "-shared",
                                        "-o",
                                        "-",
                                        "--build-id=none",
                                        "--no-undefined",
                                        "--hash-style=gnu",
                                        "-z",
                                        "relro",
                                        "-z",
                                        "now",
                                        "--strip-all",
                                        "--whole-archive",
                                        archive.path(),
                                        "--no-whole-archive"};
  arguments.append(findLibraries());
  SmallVector<StringRef> references(arguments.begin(), arguments.end());
  std::string output = library.path(), error;
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(output),
                                          std::nullopt};
  if (llvm::sys::ExecuteAndWait(*linker, references, std::nullopt, redirects, 0,
                                0, &error) != 0)
    return Status(Code::internal, "ld.lld failed: " + error);
  auto buffer = llvm::MemoryBuffer::getFile(output);
  if (!buffer)
    return Status(Code::io, "cannot read back the linked kernels: " +
                                buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

} // namespace kiln::cpu
