// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// In which operands ops are linear, where that is not just the first.
#include "dialects/kiln/Composer.h"

using namespace mlir;

namespace kiln {

static OperandGroups allTogether(Operation *op) {
  return {llvm::to_vector<2>(llvm::seq(op->getNumOperands()))};
}

static const OperandGroups eitherAlone = {{0}, {1}};

OperandGroups AddOp::getLinearGroups() { return allTogether(*this); }
OperandGroups SubOp::getLinearGroups() { return allTogether(*this); }
OperandGroups ConcatenateOp::getLinearGroups() { return allTogether(*this); }

OperandGroups MulOp::getLinearGroups() { return eitherAlone; }
OperandGroups ContractOp::getLinearGroups() { return eitherAlone; }
OperandGroups ConvolutionOp::getLinearGroups() { return eitherAlone; }
OperandGroups ConvolutionGradInputOp::getLinearGroups() { return eitherAlone; }
OperandGroups ConvolutionGradWeightOp::getLinearGroups() { return eitherAlone; }

OperandGroups EmbeddingGradOp::getLinearGroups() { return {{1}}; }

// Rounding to bf16, and to integers, is not linear.
OperandGroups ConvertOp::getLinearGroups() {
  Type to = tensorType(getResult()).getElementType();
  if (to.isF32() || to.isF64())
    return {{0}};
  return {};
}

} // namespace kiln
