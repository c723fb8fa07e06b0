// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/MoveBfloatsAsIntegers.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

using namespace mlir;

namespace kiln::cpu {

static bool isBf16(Type type) { return getElementTypeOrSelf(type).isBF16(); }

static bool isDot(Operation *op) {
  auto call = dyn_cast<LLVM::CallIntrinsicOp>(op);
  return call && call.getIntrin().contains("dpbf16ps");
}

// Whether an op only moves its values.
static bool isMove(Operation *op) {
  return isa<BranchOpInterface, LLVM::LoadOp, LLVM::StoreOp, LLVM::BitcastOp,
             LLVM::ShuffleVectorOp, LLVM::InsertElementOp,
             LLVM::ExtractElementOp, LLVM::InsertValueOp, LLVM::ExtractValueOp,
             LLVM::SelectOp, LLVM::ConstantOp, LLVM::ZeroOp, LLVM::UndefOp,
             LLVM::PoisonOp, LLVM::MaskedLoadOp, LLVM::MaskedStoreOp,
             LLVM::vector_insert, LLVM::vector_extract>(op);
}

// The instruction wants its operands as they are called.
static void giveBack(LLVM::CallIntrinsicOp dot) {
  OpBuilder builder(dot);
  for (OpOperand &operand : dot->getOpOperands())
    if (auto type = dyn_cast<VectorType>(operand.get().getType());
        type && type.getElementType().isInteger(16))
      operand.set(LLVM::BitcastOp::create(builder, dot.getLoc(),
                                          type.clone(builder.getBF16Type()),
                                          operand.get()));
}

LogicalResult moveBfloatsAsIntegers(ModuleOp module) {
  Type word = IntegerType::get(module.getContext(), 16);
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](BFloat16Type) { return word; });
  replacer.addReplacement(
      [&](DenseElementsAttr values) -> std::optional<Attribute> {
        if (!values.getElementType().isBF16())
          return std::nullopt;
        return values.bitcast(word);
      });
  replacer.addReplacement([&](FloatAttr value) -> std::optional<Attribute> {
    if (!value.getType().isBF16())
      return std::nullopt;
    return IntegerAttr::get(word, value.getValue().bitcastToAPInt());
  });
  SmallVector<LLVM::CallIntrinsicOp> dots;
  WalkResult walked = module.walk([&](Operation *op) {
    bool hasBfloats = llvm::any_of(op->getOperandTypes(), isBf16) ||
                      llvm::any_of(op->getResultTypes(), isBf16);
    if (isDot(op))
      dots.push_back(cast<LLVM::CallIntrinsicOp>(op));
    else if (hasBfloats && !isMove(op))
      return WalkResult(op->emitOpError("computes on bf16; wanted conversions "
                                        "to and from f32 around it"));
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();
  module.walk([&](Operation *op) {
    replacer.replaceElementsIn(op, /*replaceAttrs=*/true,
                               /*replaceLocs=*/false, /*replaceTypes=*/true);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setType(replacer.replace(argument.getType()));
  });
  for (LLVM::CallIntrinsicOp dot : dots)
    giveBack(dot);
  return success();
}

} // namespace kiln::cpu
