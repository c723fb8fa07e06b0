// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/kiln/Kiln.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialects/kiln/KilnDialect.cpp.inc"
#include "dialects/kiln/KilnEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/kiln/KilnAttributes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/kiln/KilnOps.cpp.inc"

namespace kiln {

void KilnDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/kiln/KilnAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/kiln/KilnOps.cpp.inc"
      >();
}

Type getPolicyType(Operation *module, StringRef part) {
  auto policy = module->getAttrOfType<DictionaryAttr>(kPrecisionAttribute);
  auto type = policy ? policy.getAs<TypeAttr>(part) : TypeAttr();
  return type ? type.getValue() : Type();
}

LogicalResult verifyComputesWide(Operation *op) {
  SmallVector<Type> types(op->getOperandTypes());
  llvm::append_range(types, op->getResultTypes());
  for (Type type : types)
    if (Type element = getElementTypeOrSelf(type); isNarrow(element))
      return op->emitOpError("computes on elements of type ")
             << element << "; wanted f32 or f64, as kiln.convert makes them";
  return success();
}

//===----------------------------------------------------------------------===//
// Variables and structure
//===----------------------------------------------------------------------===//

static LogicalResult verifyVariableUse(Operation *op, StringAttr name,
                                       Type found,
                                       SymbolTableCollection &symbols) {
  auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(op, name);
  if (!variable)
    return op->emitOpError("names '")
           << name.getValue() << "', which is not a variable";
  if (variable.getType() != found)
    return op->emitOpError("has type ")
           << found << ", but variable '" << name.getValue() << "' has type "
           << variable.getType();
  return success();
}

LogicalResult VariableOp::verifySymbolUses(SymbolTableCollection &symbols) {
  bool isCopy = getRole() == Role::working;
  if (isCopy != bool(getCopyOf()))
    return emitOpError("has the role ")
           << stringifyRole(getRole()) << (isCopy ? " without" : " and")
           << " copy_of; wanted a working copy of a parameter";
  if (!isCopy)
    return success();
  auto parameter =
      symbols.lookupNearestSymbolFrom<VariableOp>(*this, getCopyOfAttr());
  if (!parameter || parameter.getRole() != Role::parameter ||
      parameter.getWholeType().getShape() != getWholeType().getShape())
    return emitOpError("is a copy of ")
           << getCopyOfAttr() << "; wanted a parameter of its shape";
  return success();
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, getVariableAttr().getAttr(), getType(),
                           symbols);
}

LogicalResult AssignOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, getVariableAttr().getAttr(),
                           getValue().getType(), symbols);
}

static LogicalResult verifyArguments(Operation *op, StringRef region,
                                     Region &body, ArrayRef<Type> wanted) {
  auto found = body.front().getArgumentTypes();
  if (llvm::equal(found, wanted))
    return success();
  return op->emitOpError("has region '")
         << region << "' with arguments (" << found << "), but it is given ("
         << wanted << ")";
}

LogicalResult StepOp::verifyRegions() {
  for (Region &region : (*this)->getRegions())
    if (region.empty() || !isa<YieldOp>(region.front().back()))
      return emitOpError("needs regions that end in kiln.yield");
  auto yielded = [](Region &region) {
    return SmallVector<Type>(region.front().getTerminator()->getOperandTypes());
  };
  SmallVector<Type> inputs(getPrologue().front().getArgumentTypes());
  if (inputs.size() != getInputs().size())
    return emitOpError("names ")
           << getInputs().size() << " inputs, but its prologue takes "
           << inputs.size();
  SmallVector<Type> counts = yielded(getPrologue());
  SmallVector<Type> micro = inputs;
  micro.append(counts);
  SmallVector<Type> update = counts;
  update.append(yielded(getAccumulate()));
  if (failed(verifyArguments(*this, "accumulate", getAccumulate(), micro)) ||
      failed(verifyArguments(*this, "update", getUpdate(), update)))
    return failure();
  if (yielded(getUpdate()).size() != getOutputs().size())
    return emitOpError("names ")
           << getOutputs().size() << " outputs, but its update yields "
           << yielded(getUpdate()).size();
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getOperandTypes())
    return emitOpError("has operands (")
           << getOperandTypes() << "), but its body takes ("
           << block.getArgumentTypes() << ")";
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || yield.getOperandTypes() != getResultTypes())
    return emitOpError("must yield values of its result types (")
           << getResultTypes() << ")";
  return success();
}

} // namespace kiln
