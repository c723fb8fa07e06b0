// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Interface to the kernels of one kind of device: the facts that passes ask
// for, and its two tasks, planning kernels and generating their code.
#ifndef KILN_COMPILER_BACKEND_BACKEND_H
#define KILN_COMPILER_BACKEND_BACKEND_H

#include "compiler/backend/Tuning.h"
#include "dialects/exec/Exec.h"
#include "runtime/Status.h"

#include <memory>
#include <string>
#include <vector>

namespace kiln {

/// One parallel pass of a kernel: the function `symbol` runs on `items` work
/// items; all of them are done before the next stage begins. Adjacent stages
/// with several rounds, all with the same number of them, are a loop: each
/// round runs one after the other, round r on items from r * `items` on.
struct KernelStage {
  std::string symbol;
  int64_t items = 0;
  int64_t rounds = 1;

  bool operator==(const KernelStage &) const = default;
};

/// Tuning, stages and scratch of a kernel, known before any code exists.
struct KernelPlan {
  std::string family;  ///< The emitter that serves it, such as `gemm`.
  TuningRecord tuning; ///< Complete: defaults are filled in.
  std::vector<KernelStage> stages;
  int64_t scratchBytes = 0; ///< Of one launch, for all workers together.
};

/// Record stages, or all of a plan, in the kernel.
void setStages(exec::KernelOp kernel, llvm::ArrayRef<KernelStage> stages);
std::vector<KernelStage> getStages(exec::KernelOp kernel);
void setPlan(exec::KernelOp kernel, const KernelPlan &plan);

/// How much the fusion pass may put into one kernel.
struct FusionLimits {
  /// Ops of a kernel; 1 for no fusion at all. Bounds registers and compile
  /// time.
  size_t operations = 1;
};

/// The machine that code is generated for, as the artifact records it.
struct TargetFacts {
  std::string processor; ///< Such as LLVM's name of the core.
  std::string features;  ///< Checked against the machine that loads the code.
};

/// A named section of an artifact.
struct CodeSection {
  std::string name;
  std::string bytes;
};

/// Result of `generate`.
struct GeneratedCode {
  std::vector<CodeSection> sections;
  /// The stages of each kernel, as its code has them.
  std::vector<std::vector<KernelStage>> stages;
  /// A failure of the machine that compiles, not of the compiler. Then there is
  /// no code.
  Status status;
};

/// Compiled code by a key that names all it depends on. Implemented by the
/// kernel cache; calls come from one thread.
class CodeStore {
public:
  virtual ~CodeStore() = default;
  virtual std::optional<std::string> lookUp(const std::string &key) = 0;
  virtual void publish(const std::string &key, const std::string &code) = 0;
};

/// One kind of processor that kernels run on. Immutable: answers depend only on
/// its options and the arguments, and calls may come from several threads at
/// once.
class Backend {
public:
  virtual ~Backend() = default;

  /// As configs and artifacts call it.
  virtual llvm::StringRef getName() const = 0;

  /// Whether one kernel for the op is better than its decomposition.
  virtual bool hasJointForm(mlir::Operation *op) const = 0;
  virtual FusionLimits getFusionLimits() const = 0;
  /// Buffers begin at multiples of this many bytes.
  virtual int64_t getBufferAlignment() const = 0;
  /// Whether the host must copy to reach the memory that kernels work on.
  virtual bool hasSeparateMemory() const = 0;
  /// Whether a collective moves runs of contiguous elements only.
  virtual bool needsContiguousCollectives() const = 0;

  /// Fixes tiles, stages and scratch of a kernel. `tuning` overrides some of
  /// the family's defaults. Fails, with an error at the kernel, if there is no
  /// code for it.
  virtual mlir::FailureOr<KernelPlan>
  plan(exec::KernelOp kernel, const TuningRecord &tuning) const = 0;

  /// Loads the dialects that `generate` makes ops of. Not while passes run.
  virtual void prepare(mlir::MLIRContext &) const {}

  /// Generates the code of planned kernels; the same kernels give the same
  /// bytes. `store` may be null.
  virtual mlir::FailureOr<GeneratedCode>
  generate(llvm::ArrayRef<exec::KernelOp> kernels, CodeStore *store) const = 0;

  virtual TargetFacts getTarget() const = 0;
};

/// Options of a backend.
struct BackendOptions {
  int64_t workers = 1;      ///< Of a device, or of the host.
  bool isReference = false; ///< One plain kernel per op, to compare with.
};

struct BackendKind {
  llvm::StringLiteral name;
  std::unique_ptr<Backend> (*create)(const BackendOptions &options);
};

/// All backends, in Backends.cpp.
llvm::ArrayRef<BackendKind> getBackendKinds();

/// The backends of one compilation: that of the devices, and that of the
/// host, on whose memory offloaded kernels work.
class Backends {
public:
  /// The host's is the first of `kinds`. Null if `kinds` has no `device`.
  static std::unique_ptr<Backends> create(llvm::ArrayRef<BackendKind> kinds,
                                          llvm::StringRef device,
                                          const BackendOptions &options);

  const Backend &getDevice() const { return *device; }
  /// The backend of kernels that work on memory of this space.
  const Backend &get(exec::MemorySpace space) const {
    return space == exec::MemorySpace::host && host ? *host : *device;
  }
  /// Each once, the device's first.
  llvm::SmallVector<const Backend *> getAll() const;

private:
  std::unique_ptr<Backend> device, host; // No host: the device's serves it.
};

/// The backends of a CPU device, for passes that run on text.
const Backends &getDefaultBackends(bool isReference = false);

/// Code of all images, which the artifact holds beside its index.
struct ProgramCode {
  struct Target {
    std::string backend;
    TargetFacts facts;
    std::vector<CodeSection> sections;
  };
  std::vector<Target> targets; // In the order of Backends::getAll.
  Status status;               // As in GeneratedCode.
};

} // namespace kiln

#endif // KILN_COMPILER_BACKEND_BACKEND_H
