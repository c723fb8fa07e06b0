// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompiledKernel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>

using namespace mlir;

namespace kiln::cpu::test {

[[noreturn]] static void fail(const std::string &what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

static std::string writeTemporary(const std::string &bytes) {
  char name[] = "/tmp/kiln-attention-XXXXXX";
  int file = mkstemp(name);
  if (file < 0 || write(file, bytes.data(), bytes.size()) !=
                      static_cast<ssize_t>(bytes.size()))
    fail("cannot write the shared object");
  close(file);
  return name;
}

CompiledKernel::CompiledKernel(const ShapeOptions &options, bool isGradient) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.loadDialect<func::FuncDialect>();
  registerBuiltinDialectTranslation(context);
  registerLLVMDialectTranslation(context);
  Builder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  AttentionShape shape = {options.batch,
                          options.sequence,
                          options.heads,
                          options.headWidth,
                          options.isCausal,
                          /*hasLengths=*/false,
                          options.scale,
                          options.isDouble ? Type(builder.getF64Type())
                                           : Type(builder.getF32Type())};
  CpuTarget target = CpuTarget::host();
  if (options.vectorBytes)
    target.vectorBytes = options.vectorBytes;
  if (options.vectorRegisters)
    target.vectorRegisters = options.vectorRegisters;
  auto start = std::chrono::steady_clock::now();
  code = isGradient ? emitAttentionGradient(*module, "kernel", shape, target)
                    : emitAttention(*module, "kernel", shape, target);
  if (std::getenv("KILN_DUMP"))
    module->dump();
  FailureOr<std::string> object = compileObject(*module, target);
  if (failed(object))
    fail("the kernel does not compile");
  std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  compileMilliseconds = elapsed.count();
  objectBytes = object->size();
  std::string error;
  FailureOr<std::string> linked = linkObjects({*object}, error);
  if (failed(linked))
    fail(error);
  path = writeTemporary(*linked);
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(dlerror());
  for (const KernelStage &stage : code.stages)
    entries.push_back(
        reinterpret_cast<Entry>(dlsym(library, stage.symbol.c_str())));
}

CompiledKernel::~CompiledKernel() {
  if (library)
    dlclose(library);
  unlink(path.c_str());
}

void CompiledKernel::runShare(size_t stage, void *const *buffers,
                              int64_t worker, int64_t workers) const {
  int64_t items = code.stages[stage].items;
  int64_t begin = items * worker / workers;
  int64_t end = items * (worker + 1) / workers;
  entries[stage](buffers, begin, end, worker);
}

void CompiledKernel::run(std::vector<void *> buffers, int64_t workers) {
  size_t bytes = code.scratchBytesPerWorker * workers;
  void *scratch = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  // What is not written must not be used: NaN would spread to the results.
  std::memset(scratch, 0xff, bytes);
  buffers.push_back(scratch);
  for (size_t stage = 0; stage < entries.size(); ++stage) {
    std::vector<std::thread> threads;
    for (int64_t worker = 0; worker < workers; ++worker)
      threads.emplace_back(
          [&, worker] { runShare(stage, buffers.data(), worker, workers); });
    for (std::thread &thread : threads)
      thread.join();
  }
  std::free(scratch);
}

} // namespace kiln::cpu::test
