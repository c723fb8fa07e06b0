// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_SHARD_COLLECTIVES_H
#define KILN_COMPILER_SHARD_COLLECTIVES_H

#include "mlir/IR/Block.h"

namespace kiln {

/// Moves every sum over devices to where its last partial sum is made, so that
/// it runs beside the ops that follow.
void startSums(mlir::Block &block);

} // namespace kiln

#endif // KILN_COMPILER_SHARD_COLLECTIVES_H
