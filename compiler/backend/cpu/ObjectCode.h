// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_OBJECTCODE_H
#define KILN_COMPILER_BACKEND_CPU_OBJECTCODE_H

#include "compiler/backend/Backend.h"
#include "compiler/backend/cpu/CpuTarget.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace kiln::cpu {

/// Scratch buffers have static types, with room for this many workers.
inline constexpr int64_t kMaxWorkers = 256;

/// The stages of a kernel and their scratch. A stage is called with contiguous
/// ranges [begin, end) that tile its items, perhaps several on one worker. If
/// the kernel needs scratch, the last buffer of every stage is scratch:
/// `sharedScratchBytes` that all workers see and that live from stage to stage,
/// followed by `scratchBytesPerWorker` for each worker, in the order of
/// workers. Both sizes are multiples of 64.
struct StagePlan {
  std::vector<KernelStage> stages;
  int64_t scratchBytesPerWorker = 0;
  int64_t sharedScratchBytes = 0;
};

/// Creates the function of one stage at the end of `module`, with `buffers`
/// (memrefs with static shapes) followed by `begin`, `end` and `worker` as
/// arguments, and an entry block; the caller emits the body and the return. The
/// object exports
///   void symbol(void *const *buffers, int64_t begin, int64_t end, int64_t
///   worker)
mlir::func::FuncOp createStage(mlir::ModuleOp module, llvm::StringRef symbol,
                               mlir::TypeRange buffers);

/// Whether a function was made by `createStage`.
bool isStage(mlir::func::FuncOp function);

/// Marks `function` as written in vectors already. A module of nothing else
/// compiles in half the time, because no loop is searched for parallelism.
void markVectorised(mlir::func::FuncOp function);

/// The three index arguments that follow the buffers of a stage.
struct StageRange {
  mlir::Value begin, end, worker;
};
StageRange getRange(mlir::func::FuncOp stage);

/// Loads every dialect that stages are written in and lowered to. Must be
/// called before `compileObject` runs on several threads: loading a dialect is
/// not thread-safe.
void loadLoweringDialects(mlir::MLIRContext &context);

/// Lowers the stages in `module` (func, scf, memref, vector, arith, math,
/// linalg on buffers) to machine code and returns a relocatable object. The
/// module is consumed. `preciseMath` calls libm instead of polynomials.
mlir::FailureOr<std::string> compileObject(mlir::ModuleOp module,
                                           const CpuTarget &target,
                                           bool preciseMath = false);

/// Links objects into one shared object that needs nothing but libm and libc.
Expected<std::string> linkObjects(llvm::ArrayRef<std::string> objects);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_OBJECTCODE_H
