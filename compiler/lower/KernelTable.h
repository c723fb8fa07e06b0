// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_KERNELTABLE_H
#define KILN_COMPILER_LOWER_KERNELTABLE_H

#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"

namespace kiln {

/// What all launches promise about their operands: see exec.kernel.
struct OperandFacts {
  llvm::SmallVector<int64_t> alignments, overlaps;
};

/// Kernels of the module by their text, which includes the facts that their
/// code may rely on.
class KernelTable {
public:
  explicit KernelTable(mlir::ModuleOp module) : module(module) {}
  exec::KernelOp get(KernelOp kernel, const OperandFacts &facts);

private:
  mlir::ModuleOp module;
  llvm::StringMap<exec::KernelOp> known;
};

} // namespace kiln

#endif // KILN_COMPILER_LOWER_KERNELTABLE_H
