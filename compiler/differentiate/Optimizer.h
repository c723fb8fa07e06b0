// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_DIFFERENTIATE_OPTIMIZER_H
#define KILN_COMPILER_DIFFERENTIATE_OPTIMIZER_H

#include "compiler/differentiate/LossScale.h"
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Composer.h"

namespace kiln {

/// Writes the update of a step: schedule, clipping, moments and parameters.
/// Scalars are computed in f64: 1 - beta^t loses half its digits in f32 at the
/// first steps.
class Optimizer {
public:
  /// Declares a variable that is initialised to zero.
  using Declare = llvm::function_ref<VariableOp(llvm::StringRef name,
                                                mlir::RankedTensorType, Role)>;
  /// The working copy of a parameter, or null.
  using FindCopy = llvm::function_ref<VariableOp(VariableOp parameter)>;

  /// `moments` is their element type, or null for that of the parameter.
  Optimizer(const BuildStepOptions &options, mlir::Type moments,
            std::optional<LossScale> lossScale, Composer &composer,
            Declare declare, FindCopy findCopy)
      : options(options), moments(moments), lossScale(lossScale), c(composer),
        declare(declare), findCopy(findCopy) {}

  /// Updates each variable by its gradient and returns the values to report,
  /// named as in `reported`.
  llvm::SmallVector<mlir::Value> update(llvm::ArrayRef<VariableOp> parameters,
                                        mlir::ValueRange grads,
                                        mlir::Value loss);
  llvm::SmallVector<llvm::StringRef> reported() const;
  /// Moves a running statistic towards the mean over all samples. Call after
  /// `update`.
  void follow(VariableOp statistic, mlir::Value total, mlir::Value samples,
              double momentum);

private:
  mlir::Value buildRate();
  llvm::SmallVector<mlir::Value> scale(mlir::ValueRange grads,
                                       mlir::Value factor);
  mlir::Value roundStochastically(VariableOp parameter, mlir::Value value);
  mlir::Value buildNorm(mlir::ValueRange grads);
  void updateSgd(VariableOp parameter, mlir::Value grad);
  void updateAdam(VariableOp parameter, mlir::Value grad);
  VariableOp declareMoment(VariableOp parameter, llvm::StringRef suffix);
  /// In the type in which updates are computed.
  mlir::Value read(VariableOp variable);
  void assign(VariableOp variable, mlir::Value old, mlir::Value value);
  void assignParameter(VariableOp parameter, mlir::Value old,
                       mlir::Value value);
  mlir::Value scalarLike(mlir::Value scalar, mlir::Value like);

  BuildStepOptions options;
  mlir::Type moments;
  std::optional<LossScale> lossScale;
  Composer &c;
  Declare declare;
  FindCopy findCopy;
  mlir::Value step, rate, isFinite;
};

} // namespace kiln

#endif // KILN_COMPILER_DIFFERENTIATE_OPTIMIZER_H
