// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FRONTEND_MODELBUILDER_H
#define KILN_COMPILER_FRONTEND_MODELBUILDER_H

#include "compiler/config/Config.h"
#include "dialects/kiln/Composer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace kiln {

/// A total over samples and what it is divided by.
struct Loss {
  mlir::Value total, denominator;
};

/// How a parameter starts.
struct Start {
  InitKind kind = InitKind::zeros;
  double a = 0, b = 0;
};

/// Writes a model as a function `model` on a symbolic batch: what a file in
/// models/ is made of. Parameters become variables when first named; naming one
/// again gives the same value, which is how weights are tied.
class ModelBuilder {
public:
  ModelBuilder(mlir::ModuleOp module, mlir::Type precision);

  /// One batch of samples of the given shape.
  mlir::Value input(llvm::StringRef name, llvm::ArrayRef<int64_t> sampleShape);
  mlir::Value integers(llvm::StringRef name,
                       llvm::ArrayRef<int64_t> sampleShape);

  /// Matrices decay, vectors (biases, scales of norms) do not.
  mlir::Value parameter(llvm::StringRef name, llvm::ArrayRef<int64_t> shape,
                        Start start);

  /// Weight[in, out] as `name.weight` and, if wanted, `name.bias`.
  mlir::Value linear(llvm::StringRef name, mlir::Value x, int64_t out,
                     Start weight, std::optional<Start> bias);
  mlir::Value layerNorm(llvm::StringRef name, mlir::Value x, bool hasShift);
  mlir::Value embedding(llvm::StringRef name, mlir::Value ids, int64_t rows,
                        int64_t width, Start start);
  mlir::Value gelu(mlir::Value x);
  mlir::Value relu(mlir::Value x);
  /// Causal self-attention over packed queries, keys and values [batch,
  /// sequence, 3 * hidden].
  mlir::Value causalAttention(mlir::Value packed, int64_t heads);

  /// Mean over all rows of the batch.
  Loss crossEntropy(mlir::Value logits, mlir::Value labels);
  Loss headCrossEntropy(mlir::Value x, mlir::Value weight, mlir::Value labels);

  /// Ends the function.
  void finish(Loss loss);

  Composer c;

private:
  mlir::Value addArgument(mlir::RankedTensorType type,
                          mlir::NamedAttribute attribute);
  mlir::Value countRows(mlir::Value labels);

  mlir::ModuleOp module;
  mlir::Type precision;
  mlir::OpBuilder builder;
  mlir::func::FuncOp function;
  llvm::StringMap<mlir::Value> parameters;
};

} // namespace kiln

#endif // KILN_COMPILER_FRONTEND_MODELBUILDER_H
