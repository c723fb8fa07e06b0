// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_LOWER_KERNELTABLE_H
#define KILN_COMPILER_LOWER_KERNELTABLE_H

#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"

namespace kiln {

/// Kernels of the module by their text.
class KernelTable {
public:
  explicit KernelTable(mlir::ModuleOp module) : module(module) {}
  /// The kernel with this body that works on memory of the host or the device.
  exec::KernelOp get(KernelOp kernel, bool isOnHost);

private:
  mlir::ModuleOp module;
  llvm::StringMap<exec::KernelOp> known;
};

} // namespace kiln

#endif // KILN_COMPILER_LOWER_KERNELTABLE_H
