// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_DIFFERENTIATE_RECOMPUTATION_H
#define KILN_COMPILER_DIFFERENTIATE_RECOMPUTATION_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// Lets the backward pass of a layer read clones of the layer's ops instead of
/// what they made. A clone starts from values that are kept anyway and waits
/// for a gradient (`kiln.defer`), so that no later pass can merge it with
/// the original. What leaves a layer is kept.
class Recomputation {
public:
  /// Takes the forward ops before there are others; `what` is none, attention
  /// or full.
  Recomputation(llvm::ArrayRef<mlir::Operation *> forward,
                llvm::StringRef what);

  /// The ops before `end` that were not there at the last call are a gradient
  /// rule, given `gradient`.
  void follow(mlir::Operation *end, mlir::Value gradient);

  /// Makes clones where they are first read, and takes the marks of layers
  /// away. Fails if an op cannot be computed twice.
  mlir::LogicalResult run();

private:
  /// Of a gradient rule.
  struct Reader {
    mlir::Operation *op;
    mlir::Value gradient;
  };

  mlir::Attribute layerOf(mlir::Operation *op) const;
  bool isMadeAgain(mlir::Value value) const;
  mlir::FailureOr<mlir::Value> makeAgain(mlir::Value value,
                                         const Reader &reader);
  mlir::Value enter(mlir::Value value, mlir::Attribute layer,
                    const Reader &reader);

  llvm::SmallVector<mlir::Operation *> forward;
  llvm::SmallPtrSet<mlir::Operation *, 32> isForward;
  bool isOn, isAttentionOnly;
  llvm::SmallVector<Reader> readers;
  mlir::Operation *last; // of all ops seen
  llvm::DenseMap<mlir::Value, mlir::Value> clones;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Attribute>, mlir::Value> entered;
};

} // namespace kiln

#endif // KILN_COMPILER_DIFFERENTIATE_RECOMPUTATION_H
