// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_DIFFERENTIATE_LOSSSCALE_H
#define KILN_COMPILER_DIFFERENTIATE_LOSSSCALE_H

#include "dialects/kiln/Composer.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace kiln {

/// The factor of the loss that is differentiated: without it small gradients
/// vanish in f16. Gradients that are not finite halve it, and their step
/// updates nothing; after some finite steps in a row it doubles.
class LossScale {
public:
  /// Declares its variables before `at`; nothing if the module's precision
  /// policy scales no loss.
  static std::optional<LossScale> declare(mlir::Operation *at);

  mlir::Value read(Composer &c);
  /// Writes the variables at the end of a step that began with the scale
  /// `before`, and returns values to report, named as in `reported`.
  llvm::SmallVector<mlir::Value> follow(Composer &c, mlir::Value before,
                                        mlir::Value isFinite);
  static llvm::SmallVector<llvm::StringRef> reported() {
    return {"loss_scale", "skipped_steps"};
  }

private:
  LossScale(VariableOp scale, VariableOp finiteSteps, VariableOp skippedSteps,
            int64_t growthSteps)
      : scale(scale), finiteSteps(finiteSteps), skippedSteps(skippedSteps),
        growthSteps(growthSteps) {}

  VariableOp scale, finiteSteps, skippedSteps;
  int64_t growthSteps;
};

} // namespace kiln

#endif // KILN_COMPILER_DIFFERENTIATE_LOSSSCALE_H
