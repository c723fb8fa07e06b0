// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/interfaces/Interfaces.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

#include "dialects/interfaces/Interfaces.cpp.inc"

using namespace mlir;

namespace kiln {

SmallVector<AffineMap> getIdentityLoopMaps(Operation *op) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  AffineMap identity =
      AffineMap::getMultiDimIdentityMap(type.getRank(), op->getContext());
  return SmallVector<AffineMap>(op->getNumOperands() + 1, identity);
}

// Calls `visit(dimension, size, what)` for every position of every map.
template <typename Visitor>
static LogicalResult visitLoopSizes(Operation *op, Visitor visit) {
  SmallVector<AffineMap> maps = cast<Structured>(op).getLoopMaps();
  unsigned operands = op->getNumOperands();
  for (auto [index, map] : llvm::enumerate(maps)) {
    Value value = index < operands ? op->getOperand(index) : op->getResult(0);
    auto type = cast<RankedTensorType>(value.getType());
    std::string what = index < operands ? "operand " + std::to_string(index)
                                        : std::string("the result");
    if (type.getRank() != int64_t(map.getNumResults()))
      return op->emitOpError("has ") << what << " of rank " << type.getRank()
                                     << ", but its indexing names "
                                     << map.getNumResults() << " dimensions";
    for (auto [position, size] : llvm::enumerate(type.getShape()))
      if (failed(visit(map.getDimPosition(position), size, StringRef(what))))
        return failure();
  }
  return success();
}

LogicalResult verifyStructured(Operation *op) {
  SmallVector<AffineMap> maps = cast<Structured>(op).getLoopMaps();
  if (maps.size() != op->getNumOperands() + 1)
    return op->emitOpError("has ")
           << op->getNumOperands() << " operands, but its indexing names "
           << maps.size() - 1;
  SmallVector<std::optional<int64_t>> sizes(maps.front().getNumDims());
  SmallVector<std::string> owners(sizes.size());
  LogicalResult result = visitLoopSizes(
      op,
      [&](unsigned dimension, int64_t size, StringRef what) -> LogicalResult {
        if (!sizes[dimension]) {
          sizes[dimension] = size;
          owners[dimension] = what.str();
          return success();
        }
        if (*sizes[dimension] == size)
          return success();
        auto show = [](int64_t value) {
          return ShapedType::isDynamic(value) ? std::string("?")
                                              : std::to_string(value);
        };
        return op->emitOpError("has loop dimension ")
               << dimension << " of size " << show(*sizes[dimension]) << " in "
               << owners[dimension] << " and of size " << show(size) << " in "
               << what;
      });
  if (failed(result))
    return failure();
  for (auto [dimension, size] : llvm::enumerate(sizes))
    if (!size)
      return op->emitOpError("never uses loop dimension ") << dimension;
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  if (cast<Structured>(op).getReduction() != Reduction::none &&
      !isa<FloatType>(element))
    return op->emitOpError("reduces elements of type ")
           << element << "; wanted floats";
  return success();
}

SmallVector<int64_t> getLoopSizes(Structured op) {
  SmallVector<int64_t> sizes(op.getLoopMaps().front().getNumDims());
  (void)visitLoopSizes(op, [&](unsigned dimension, int64_t size, StringRef) {
    sizes[dimension] = size;
    return success();
  });
  return sizes;
}

static int64_t countPoints(Structured op) {
  int64_t points = 1;
  for (int64_t size : getLoopSizes(op)) {
    if (ShapedType::isDynamic(size))
      llvm::report_fatal_error(
          "the work of an op is asked for while its batch has no size yet");
    points *= size;
  }
  return points;
}

// A contraction multiplies elements of two operands and sums.
static bool isContraction(Structured op) {
  return op->getNumOperands() == 2 && op.getReduction() == Reduction::sum;
}

int64_t getStructuredFlops(Operation *op) {
  auto structured = cast<Structured>(op);
  return isContraction(structured) ? 2 * countPoints(structured) : 0;
}

int64_t getStructuredPointwise(Operation *op) {
  auto structured = cast<Structured>(op);
  return isContraction(structured) ? 0 : countPoints(structured);
}

bool isElementwise(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return structured && structured.getReduction() == Reduction::none &&
         op->getNumOperands() > 0 &&
         llvm::all_of(structured.getLoopMaps(),
                      [](AffineMap map) { return map.isIdentity(); });
}

} // namespace kiln
