// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_KILN_KILN_H
#define KILN_DIALECTS_KILN_KILN_H

#include "dialects/interfaces/Interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace kiln {

mlir::LogicalResult verifyComputesWide(mlir::Operation *op);

/// The op computes on no elements of 16 bits.
template <typename Op>
class ComputesWide : public mlir::OpTrait::TraitBase<Op, ComputesWide> {
public:
  static mlir::LogicalResult verifyTrait(mlir::Operation *op) {
    return verifyComputesWide(op);
  }
};

} // namespace kiln

#include "dialects/kiln/KilnDialect.h.inc"
#include "dialects/kiln/KilnEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/kiln/KilnAttributes.h.inc"
#define GET_OP_CLASSES
#include "dialects/kiln/KilnOps.h.inc"

namespace kiln {

// Attributes that frontend and passes use to mark functions.
inline constexpr llvm::StringLiteral kLossAttribute = "kiln.loss";
inline constexpr llvm::StringLiteral kVariableAttribute = "kiln.variable";
inline constexpr llvm::StringLiteral kInputAttribute = "kiln.input";
inline constexpr llvm::StringLiteral kDenominatorAttribute = "kiln.denominator";
inline constexpr llvm::StringLiteral kScaleAttribute = "kiln.scale";
// An argument: the value of a variable without gradient.
inline constexpr llvm::StringLiteral kStateAttribute = "kiln.state";
// A result that is a total over samples. A running statistic tracks its mean:
// {variable, momentum}.
inline constexpr llvm::StringLiteral kRunningAttribute = "kiln.running";
// Index of the layer of an op of a loss, and whether the op is part of the
// layer's attention. Recomputation reads both; differentiation removes them.
inline constexpr llvm::StringLiteral kLayerAttribute = "kiln.layer";
inline constexpr llvm::StringLiteral kAttentionAttribute = "kiln.attention";
// In locations, see Origin.h.
inline constexpr llvm::StringLiteral kPassAttribute = "kiln.pass";
inline constexpr llvm::StringLiteral kGradientOfAttribute = "kiln.gradient_of";
inline constexpr llvm::StringLiteral kOpAttribute = "kiln.op";
// On a function that evaluates a model: the names of its results.
inline constexpr llvm::StringLiteral kEvaluationAttribute = "kiln.evaluation";

// On a variable argument of a loss: the element type of its gradient, if it is
// not that of the argument.
inline constexpr llvm::StringLiteral kGradientTypeAttribute =
    "kiln.gradient_type";
// On a module: types of the precision policy that passes after the first ask
// for, {messages = bf16, moments = f32}. A loss that is scaled has the initial
// scale there and the steps after which it grows.
inline constexpr llvm::StringLiteral kPrecisionAttribute = "kiln.precision";
inline constexpr llvm::StringLiteral kLossScalePart = "loss_scale";
inline constexpr llvm::StringLiteral kGrowthStepsPart = "growth_steps";

// Variables of role `setting`.
inline constexpr llvm::StringLiteral kRateSettings[] = {
    "setting.learning_rate", "setting.minimum_rate", "setting.warmup",
    "setting.schedule_steps"};
inline constexpr llvm::StringLiteral kSeedSetting = "setting.seed";

// The program that writes all working copies from their parameters.
inline constexpr llvm::StringLiteral kRefreshProgram = "refresh";

// On the module of an image: samples of the global batch per replica.
inline constexpr llvm::StringLiteral kShareAttribute = "kiln.share";

// On a step: the parameters whose gradients are the last of its sums.
inline constexpr llvm::StringLiteral kGradientsAttribute = "kiln.gradients";

/// A type of the module's precision policy, see kPrecisionAttribute; null
/// without a policy.
mlir::Type getPolicyType(mlir::Operation *module, llvm::StringRef part);

/// Whether members of a group exchange data, so that all must run it.
inline bool isExchange(mlir::Operation *op) {
  auto collective = mlir::dyn_cast<Collective>(op);
  return collective && collective.communicates();
}

} // namespace kiln

#endif // KILN_DIALECTS_KILN_KILN_H
