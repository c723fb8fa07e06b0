// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/MoveBfloatsAsIntegers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

using namespace mlir;

namespace kiln::cpu {

static bool isBf16(Type type) { return getElementTypeOrSelf(type).isBF16(); }

// Whether an op only moves its values.
static bool isMove(Operation *op) {
  return isa<BranchOpInterface, LLVM::LoadOp, LLVM::StoreOp, LLVM::BitcastOp,
             LLVM::ShuffleVectorOp, LLVM::InsertElementOp,
             LLVM::ExtractElementOp, LLVM::InsertValueOp, LLVM::ExtractValueOp,
             LLVM::SelectOp, LLVM::ConstantOp, LLVM::ZeroOp, LLVM::UndefOp,
             LLVM::PoisonOp, LLVM::MaskedLoadOp, LLVM::MaskedStoreOp,
             LLVM::vector_insert, LLVM::vector_extract>(op);
}

bool onlyMovesBfloats(ModuleOp module) {
  return !module
              .walk([](Operation *op) {
                bool computes =
                    isa<arith::ExtFOp, arith::TruncFOp, arith::BitcastOp,
                        LLVM::CallIntrinsicOp, vector::BitCastOp>(op);
                return computes ? WalkResult::interrupt()
                                : WalkResult::advance();
              })
              .wasInterrupted();
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
  WalkResult walked = module.walk([&](Operation *op) {
    bool hasBfloats = llvm::any_of(op->getOperandTypes(), isBf16) ||
                      llvm::any_of(op->getResultTypes(), isBf16);
    if (hasBfloats && !isMove(op))
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
  return success();
}

} // namespace kiln::cpu
