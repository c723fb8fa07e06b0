// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_DIFFERENTIATE_SAMPLESUMS_H
#define KILN_COMPILER_DIFFERENTIATE_SAMPLESUMS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kiln {

/// Checks that the results of a loss function are sums over the samples of the
/// batch. Only such sums can be split over micro-batches and replicas. Reports
/// the first op that breaks this.
mlir::LogicalResult verifySampleSums(mlir::func::FuncOp function);

} // namespace kiln

#endif // KILN_COMPILER_DIFFERENTIATE_SAMPLESUMS_H
