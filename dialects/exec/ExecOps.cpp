// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/exec/Exec.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;

#include "dialects/exec/ExecDialect.cpp.inc"
#include "dialects/exec/ExecEnums.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/exec/ExecOps.cpp.inc"

namespace kiln::exec {

void ExecDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/exec/ExecOps.cpp.inc"
      >();
}

bool isStatic(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() &&
         tensor.getElementType().isIntOrFloat();
}

LogicalResult KernelOp::verifyRegions() {
  Block &body = getBody().front();
  int64_t inputs = body.getNumArguments(),
          outputs = body.back().getNumOperands();
  for (Type type :
       llvm::concat<Type>(SmallVector<Type>(body.getArgumentTypes()),
                          SmallVector<Type>(body.back().getOperandTypes())))
    if (!isStatic(type))
      return emitOpError("has operand type ")
             << type << "; wanted static tensors of numbers";
  if (int64_t(getAlignments().size()) != inputs + outputs)
    return emitOpError("has alignments of ")
           << getAlignments().size() << " operands; wanted " << inputs
           << " inputs and " << outputs << " outputs";
  for (int64_t alignment : getAlignments())
    if (!llvm::isPowerOf2_64(alignment))
      return emitOpError("has an operand aligned to ")
             << alignment << " bytes; wanted a power of two";
  ArrayRef<int64_t> pairs = getOverlaps();
  if (pairs.size() % 2 != 0)
    return emitOpError("has ")
           << pairs.size() << " indices of overlapping operands; wanted pairs";
  for (; !pairs.empty(); pairs = pairs.drop_front(2))
    if (pairs[0] < 0 || pairs[0] >= inputs || pairs[1] < 0 ||
        pairs[1] >= outputs)
      return emitOpError("has input ")
             << pairs[0] << " under output " << pairs[1] << ", of " << inputs
             << " inputs and " << outputs << " outputs";
  return success();
}

} // namespace kiln::exec
