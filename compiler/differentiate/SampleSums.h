// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_DIFFERENTIATE_SAMPLESUMS_H
#define KILN_COMPILER_DIFFERENTIATE_SAMPLESUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kiln {

/// Whether what a loss function returns are sums over the samples of the batch:
/// then they can be taken over micro-batches and replicas, and only then. Says
/// at which op they are not.
mlir::LogicalResult verifySampleSums(mlir::func::FuncOp function);

} // namespace kiln

#endif // KILN_COMPILER_DIFFERENTIATE_SAMPLESUMS_H
