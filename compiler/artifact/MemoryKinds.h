// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_ARTIFACT_MEMORYKINDS_H
#define KILN_COMPILER_ARTIFACT_MEMORYKINDS_H

#include "compiler/backend/Backend.h"

#include "mlir/IR/BuiltinOps.h"

namespace kiln {

/// Bytes of a planned image, under the name that users see.
struct MemoryKind {
  llvm::StringRef name;
  uint64_t bytes;
};

/// Kinds of always-live buffers, then gathered parameters and weight gradients
/// at the peak, then all others, which share the rest of the memory. The sum is
/// the memory of a device or, with `isHost`, that of the host.
llvm::SmallVector<MemoryKind> listMemory(mlir::ModuleOp image,
                                         const Backends &backends, bool isHost);

} // namespace kiln

#endif // KILN_COMPILER_ARTIFACT_MEMORYKINDS_H
