// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_COMPILE_H
#define KILN_COMPILER_COMPILE_H

#include "compiler/config/CacheKey.h"
#include "compiler/config/Config.h"
#include "compiler/pipeline/Pipeline.h"
#include "runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <span>
#include <string>

namespace kiln {

struct CompileOptions {
  /// Generate the unoptimised program that tests compare with.
  bool isReference = false;
  /// Plan memory with red zones between buffers, which the runtime checks.
  bool hasRedZones = wantsRedZones();
  /// Existing folder for the IR after each pass; empty for none.
  std::string dumpFolder;
  /// Folder of the cache that kernels are looked up in; empty for none.
  std::string cacheFolder;
  /// The artifact's name in messages; empty for its path.
  std::string outputName;
  llvm::ArrayRef<BackendKind> backends = getBackendKinds();
  /// The backend of the devices; empty for the one that the config's
  /// devices.kind names.
  std::string deviceBackend;
  ChangeStep changeStep;
  /// Called with the verified model (describeModel), or null. Returns why the
  /// model cannot be trained; empty if it can.
  std::function<std::string(std::span<const uint8_t>)> checkModel;
  /// Called with the name of each activity when it begins, or null.
  void (*showActivity)(const char *name) = nullptr;

  void enter(const char *activity) const {
    if (showActivity)
      showActivity(activity);
  }
};

/// A context with every dialect that a module may contain after any pass.
struct CompileContext {
  CompileContext();
  mlir::MLIRContext mlir;
};

/// Compiles a frontend's module and writes the artifact. The module is changed
/// in place: after success it holds the planned images (`getImages`), kernels
/// included, so that tests can inspect the program that the runtime will run.
/// Diagnostics are the message of the status, one per line as `file:line:col:
/// error: ...`.
Status compileModule(mlir::ModuleOp module, const Config &config,
                     const CompileOptions &options,
                     const std::string &outputPath);

/// The same for the model that the config names.
Status compileConfig(const Config &config, const CompileOptions &options,
                     const std::string &outputPath);

} // namespace kiln

#endif // KILN_COMPILER_COMPILE_H
