// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_KERNELBODY_H
#define KILN_COMPILER_BACKEND_CPU_KERNELBODY_H

#include "compiler/backend/cpu/ObjectCode.h"
#include "dialects/kiln/Kiln.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace kiln::cpu {

/// A tensor in memory: flat, row-major; truth values as bytes.
mlir::MemRefType getBufferType(mlir::Type tensor);

/// Buffers of a kernel with this body: inputs, outputs, and scratch if any.
llvm::SmallVector<mlir::Type> getBufferTypes(mlir::Block &body,
                                             int64_t scratchElements,
                                             mlir::Type scratchElement);

/// Writes index arithmetic; folds constants.
struct IndexBuilder {
  mlir::OpBuilder &builder;
  mlir::Location loc;

  mlir::Value constant(int64_t value) const;
  mlir::Value add(mlir::Value a, mlir::Value b) const;
  mlir::Value mul(mlir::Value a, int64_t b) const;
  mlir::Value div(mlir::Value a, int64_t b) const;
  mlir::Value rem(mlir::Value a, int64_t b) const;
  mlir::Value min(mlir::Value a, mlir::Value b) const;
  /// Splits a row-major position into indices of the given sizes.
  llvm::SmallVector<mlir::Value>
  delinearise(mlir::Value position, llvm::ArrayRef<int64_t> sizes) const;
};

/// Loads or stores one element; truth values are bytes in memory.
mlir::Value loadElement(mlir::OpBuilder &, mlir::Location, mlir::Value buffer,
                        mlir::Value position, mlir::Type elementType);
void storeElement(mlir::OpBuilder &, mlir::Location, mlir::Value value,
                  mlir::Value buffer, mlir::Value position);

/// The value that leaves another unchanged when combined by `reduction`.
mlir::TypedAttr getNeutral(mlir::OpBuilder &, Reduction reduction,
                           mlir::Type type);
mlir::Value combine(mlir::OpBuilder &, mlir::Location, Reduction reduction,
                    mlir::Value a, mlir::Value b);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_KERNELBODY_H
