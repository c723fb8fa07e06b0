// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/interfaces/Interfaces.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
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

bool isNarrow(Type element) { return element.isBF16() || element.isF16(); }

Type getAccumulatorType(Type element) {
  return isNarrow(element) ? Float32Type::get(element.getContext()) : element;
}

static bool hasFloats(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value.getType()));
}

Type getOperandType(Accumulating op) {
  for (Value operand : op->getOperands())
    if (hasFloats(operand) && !op.isStatistic(operand))
      return getElementTypeOrSelf(operand.getType());
  llvm_unreachable("an op that accumulates nothing");
}

LogicalResult verifyAccumulating(Operation *op) {
  auto accumulating = cast<Accumulating>(op);
  Type element = getOperandType(accumulating);
  for (Value operand : op->getOperands())
    if (hasFloats(operand) && !accumulating.isStatistic(operand) &&
        getElementTypeOrSelf(operand.getType()) != element)
      return op->emitOpError("has operands with elements of type ")
             << element << " and " << getElementTypeOrSelf(operand.getType())
             << "; wanted one type";
  Type accumulator = getAccumulatorType(element);
  auto verify = [&](Value value, StringRef what) -> LogicalResult {
    bool isStatistic = accumulating.isStatistic(value);
    Type found = getElementTypeOrSelf(value.getType());
    if (!hasFloats(value) || found == accumulator ||
        (found == element && !isStatistic))
      return success();
    InFlightDiagnostic error = op->emitOpError("has ")
                               << what << " with elements of type " << found
                               << "; from " << element << " wanted "
                               << accumulator;
    if (accumulator != element && !isStatistic)
      error << " or " << element;
    return error;
  };
  for (Value operand : op->getOperands())
    if (accumulating.isStatistic(operand) &&
        failed(verify(operand, "a statistic")))
      return failure();
  for (Value result : op->getResults())
    if (failed(verify(result, accumulating.isStatistic(result) ? "a statistic"
                                                               : "a result")))
      return failure();
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

int64_t getByteSize(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t width = tensor.getElementTypeBitWidth();
  return tensor.getNumElements() * (width == 1 ? 1 : width / 8);
}

int64_t getStreamedBytes(Operation *op) {
  int64_t bytes = 0;
  for (Type type : llvm::concat<Type>(SmallVector<Type>(op->getOperandTypes()),
                                      SmallVector<Type>(op->getResultTypes())))
    bytes += getByteSize(type);
  return bytes;
}

// A contraction is a matrix product. Loops of both operands and the result are
// batch loops; m loops are of the left operand, n loops of the right.
static MatrixWork getProduct(Structured op, ArrayRef<int64_t> sizes) {
  SmallVector<AffineMap> maps = op.getLoopMaps();
  Type element = getElementTypeOrSelf(op->getOperand(0).getType());
  int64_t batch = 1, m = 1, n = 1, k = 1;
  for (auto [dimension, size] : llvm::enumerate(sizes)) {
    bool isLeft = maps[0].isFunctionOfDim(dimension),
         isRight = maps[1].isFunctionOfDim(dimension),
         isKept = maps[2].isFunctionOfDim(dimension);
    (!isKept ? k : isLeft && isRight ? batch : isLeft ? m : n) *= size;
  }
  return MatrixWork(batch, m, n, k, element);
}

static Work getStructuredWork(Structured op) {
  SmallVector<int64_t> sizes = getLoopSizes(op);
  Work work;
  work.bytes = getStreamedBytes(op);
  bool isContraction =
      op->getNumOperands() == 2 && op.getReduction() == Reduction::sum;
  if (isContraction)
    work.products.push_back(getProduct(op, sizes));
  else
    work.pointwise = llvm::product_of(sizes);
  return work;
}

// Sums the work of the decomposition, which is built in a block of its own and
// discarded. The bytes are the op's: fused, the simpler ops stream no others.
static Work getCompositeWork(Operation *op) {
  Work work;
  Region region;
  Block &block = region.emplaceBlock();
  IRMapping mapping;
  for (Value operand : op->getOperands())
    if (!mapping.contains(operand))
      mapping.map(operand, block.addArgument(operand.getType(), op->getLoc()));
  OpBuilder builder(op->getContext());
  builder.setInsertionPointToEnd(&block);
  Operation *copy = builder.clone(*op, mapping);
  builder.setInsertionPoint(copy);
  cast<Composite>(copy).decompose(builder);
  for (Operation &part : block)
    if (auto costed = dyn_cast<Costed>(part); costed && &part != copy) {
      Work more = costed.getWork();
      work.products.append(more.products);
      work.pointwise += more.pointwise;
    }
  work.bytes = getStreamedBytes(op);
  block.dropAllReferences();
  return work;
}

Work getDerivedWork(Operation *op) {
  auto isStatic = [](Type type) {
    return cast<RankedTensorType>(type).hasStaticShape();
  };
  // Dynamic sizes are marker values; their product would be meaningless.
  if (!llvm::all_of(op->getOperandTypes(), isStatic) ||
      !llvm::all_of(op->getResultTypes(), isStatic))
    llvm::report_fatal_error(
        "the work of an op is asked for while its batch has no size yet");
  if (auto structured = dyn_cast<Structured>(op))
    return getStructuredWork(structured);
  if (isa<Composite>(op))
    return getCompositeWork(op);
  Work work;
  work.bytes = getStreamedBytes(op);
  return work;
}

bool isMovement(Operation *op, Movement movement) {
  auto rearranging = dyn_cast_or_null<Rearranging>(op);
  return rearranging && rearranging.getMovement() == movement;
}

bool isSum(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return structured && op->getNumOperands() == 1 &&
         structured.getReduction() == Reduction::sum;
}

bool isElementwise(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return structured && structured.getReduction() == Reduction::none &&
         op->getNumOperands() > 0 &&
         llvm::all_of(structured.getLoopMaps(),
                      [](AffineMap map) { return map.isIdentity(); });
}

bool isElementwiseSum(Operation *op) {
  auto linear = dyn_cast<Linear>(op);
  return linear && isElementwise(op) && !isa<Rearranging>(op) &&
         op->getResultTypes()[0] == op->getOperandTypes()[0] &&
         llvm::any_of(linear.getLinearGroups(), [&](const auto &group) {
           return group.size() == op->getNumOperands();
         });
}

} // namespace kiln
