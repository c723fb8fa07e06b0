// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_DIFFERENTIATE_RECOMPUTATION_H
#define KILN_COMPILER_DIFFERENTIATE_RECOMPUTATION_H

#include "dialects/kiln/Kiln.h"

namespace kiln {

/// Rematerialises activations: the backward pass of a layer reads clones of the
/// layer's ops. A clone starts from values that are kept anyway and waits for a
/// gradient (`kiln.defer`), so that no later pass can merge it with the
/// original. Values that leave a layer are kept.
class Recomputation {
public:
  /// Takes the forward ops before any gradient op exists; `what` is none,
  /// attention or full.
  Recomputation(llvm::ArrayRef<mlir::Operation *> forward,
                llvm::StringRef what);

  /// The ops before `end` that are new since the last call belong to a gradient
  /// rule that was given `gradient`.
  void follow(mlir::Operation *end, mlir::Value gradient);

  /// Inserts clones where they are first read, and removes the layer marks.
  /// Fails if an op cannot be computed twice.
  mlir::LogicalResult run();

private:
  /// An op of a gradient rule.
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
