// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_KERNELTABLE_H
#define KILN_COMPILER_LOWER_KERNELTABLE_H

#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"

#include <deque>

namespace kiln {

/// Facts about the operands that hold in all launches: see exec.kernel.
struct OperandFacts {
  llvm::SmallVector<int64_t> alignments, overlaps;
  bool isOnHost = false;

  bool operator==(const OperandFacts &) const = default;
};

/// Kernels of the module by what they compute and by the facts that their code
/// may rely on. Layers that are alike ask for the same kernel many times, so
/// bodies are compared as ops, and analysed and printed once.
class KernelTable {
public:
  /// Facts shared by the kernels of one body.
  struct Body {
    mlir::Region region;
    /// For each output, the inputs that it may overwrite.
    llvm::SmallVector<llvm::SmallVector<unsigned>> overwritable;
    int64_t flops = 0, bytes = 0;
    llvm::SmallVector<std::pair<OperandFacts, exec::KernelOp>, 1> kernels;
  };

  explicit KernelTable(mlir::ModuleOp module) : module(module) {}

  Body &find(KernelOp kernel);
  exec::KernelOp get(Body &body, const OperandFacts &facts);

private:
  mlir::ModuleOp module;
  std::deque<Body> bodies; // Addresses stay.
  llvm::DenseMap<unsigned, llvm::SmallVector<Body *, 1>> byHash;
};

} // namespace kiln

#endif // KILN_COMPILER_LOWER_KERNELTABLE_H
