// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/backend/cpu/KernelRunner.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace mlir;

namespace kiln::cpu {

static void die(const char *what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

LoadedKernel::LoadedKernel(const CpuTarget &target, const Emit &emit) {
  DialectRegistry registry;
  registry.insert<affine::AffineDialect, arith::ArithDialect, func::FuncDialect,
                  LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect,
                  scf::SCFDialect, vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  auto start = std::chrono::steady_clock::now();
  OwningOpRef<ModuleOp> module(ModuleOp::create(UnknownLoc::get(&context)));
  kernel = emit(*module, target);
  if (failed(verify(*module)))
    die("the emitted module is not valid");
  FailureOr<std::string> object = compileObject(*module, target);
  if (failed(object))
    die("the kernel does not compile");
  seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  Expected<std::string> shared = linkObjects({*object});
  if (!shared.ok())
    die(shared.status().message().c_str());
  // The file stays open: dlopen knows libraries by name, and the name of a
  // closed descriptor would be given to the next kernel.
  file = memfd_create("kernel", 0);
  if (write(file, shared->data(), shared->size()) != ssize_t(shared->size()))
    die("cannot write the kernel");
  library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW);
  if (!library)
    die(dlerror());
  for (const KernelStage &stage : kernel.stages)
    functions.push_back(
        reinterpret_cast<StageFunction>(dlsym(library, stage.symbol.c_str())));
}

LoadedKernel::~LoadedKernel() {
  dlclose(library);
  close(file);
}

int64_t LoadedKernel::scratchBytes(int64_t workers) const {
  return kernel.sharedScratchBytes + kernel.scratchBytesPerWorker * workers;
}

void *LoadedKernel::scratch(int64_t workers) const {
  int64_t bytes = scratchBytes(workers);
  if (memoryWorkers < workers) {
    memory.reset(new char[bytes + 64]);
    std::memset(memory.get(), 0xff, bytes + 64);
    memoryWorkers = workers;
  }
  return reinterpret_cast<void *>(
      (reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t(63));
}

void LoadedKernel::runShare(size_t stage, void *const *buffers, int64_t worker,
                            int64_t workers, int64_t round) const {
  int64_t items = kernel.stages[stage].items;
  int64_t begin = items * worker / workers;
  int64_t end = items * (worker + 1) / workers;
  if (begin < end)
    functions[stage](buffers, round * items + begin, round * items + end,
                     worker);
}

void LoadedKernel::run(std::vector<void *> buffers, int64_t workers) const {
  buffers.push_back(scratch(workers));
  std::memset(buffers.back(), 0xff, scratchBytes(workers));
  auto runStage = [&](size_t stage, int64_t round) {
    std::vector<std::thread> threads;
    for (int64_t worker = 0; worker < workers; ++worker)
      threads.emplace_back([&, worker] {
        runShare(stage, buffers.data(), worker, workers, round);
      });
    for (std::thread &thread : threads)
      thread.join();
  };
  for (size_t first = 0, end; first < functions.size(); first = end) {
    int64_t rounds = kernel.stages[first].rounds;
    end = first + 1;
    while (rounds != 1 && end < functions.size() &&
           kernel.stages[end].rounds == rounds)
      ++end;
    for (int64_t round = 0; round < rounds; ++round)
      for (size_t stage = first; stage < end; ++stage)
        runStage(stage, round);
  }
}

GuardedBuffer::GuardedBuffer(size_t bytes) {
  size_t page = 4096;
  size_t whole = (bytes + page - 1) / page * page;
  mappedBytes = whole + page;
  mapping = mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(static_cast<char *>(mapping) + whole, page, PROT_NONE);
  start = static_cast<char *>(mapping) + whole - bytes;
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping, mappedBytes); }

} // namespace kiln::cpu
