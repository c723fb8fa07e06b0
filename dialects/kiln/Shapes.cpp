// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ops that change shapes, and iota.
#include "dialects/kiln/Answers.h"

using namespace mlir;

namespace kiln {

LogicalResult ReshapeOp::verify() {
  auto from = cast<RankedTensorType>(getOperand().getType());
  auto to = cast<RankedTensorType>(getType());
  if (from.getElementType() != to.getElementType())
    return emitOpError("cannot turn ")
           << from << " into " << to << ": the element types differ";
  // The batch stays where it is, so that every `?` remains the batch.
  bool isSymbolic = !from.hasStaticShape() || !to.hasStaticShape();
  ArrayRef<int64_t> source = from.getShape(), target = to.getShape();
  if (isSymbolic) {
    if (source.empty() || target.empty() ||
        !ShapedType::isDynamic(source.front()) ||
        !ShapedType::isDynamic(target.front()))
      return emitOpError("must keep the batch as first dimension, but turns ")
             << from << " into " << to;
    source = source.drop_front();
    target = target.drop_front();
  }
  auto product = [](ArrayRef<int64_t> shape) {
    int64_t result = 1;
    for (int64_t size : shape)
      result *= size;
    return result;
  };
  if (product(source) != product(target))
    return emitOpError("turns ")
           << product(source) << " elements into " << product(target);
  return success();
}

Values ReshapeOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc())
              .reshape(grads[0], tensorType(getOperand()).getShape())};
}

LogicalResult IotaOp::verify() {
  if (cast<RankedTensorType>(getType()).getRank() != 1)
    return emitOpError("makes a vector, but its type is ") << getType();
  return success();
}

std::string IotaOp::getFactors() { return "->a"; }

static LogicalResult verifyDimension(Operation *op, int64_t dimension,
                                     int64_t rank) {
  if (dimension < 0 || dimension >= rank)
    return op->emitOpError("names dimension ")
           << dimension << " of a tensor of rank " << rank;
  return success();
}

LogicalResult SliceOp::verify() {
  auto from = cast<RankedTensorType>(getOperand().getType());
  auto to = cast<RankedTensorType>(getType());
  int64_t dimension = getDimension();
  if (failed(verifyDimension(*this, dimension, from.getRank())))
    return failure();
  SmallVector<int64_t> wanted(from.getShape());
  if (to.getRank() == from.getRank())
    wanted[dimension] = to.getDimSize(dimension);
  if (to != RankedTensorType::get(wanted, from.getElementType()) ||
      from.isDynamicDim(dimension))
    return emitOpError("cannot cut ")
           << to << " out of " << from << " along dimension " << dimension;
  int64_t end = getOffset() + to.getDimSize(dimension);
  if (int64_t(getOffset()) < 0 || end > from.getDimSize(dimension))
    return emitOpError("takes [")
           << getOffset() << ", " << end << ") of dimension " << dimension
           << ", which has size " << from.getDimSize(dimension);
  return success();
}

// The gradient is zero outside the slice.
Values SliceOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  RankedTensorType from = tensorType(getOperand());
  int64_t dimension = getDimension(), offset = getOffset();
  int64_t after = from.getDimSize(dimension) - offset -
                  tensorType(grads[0]).getDimSize(dimension);
  SmallVector<Value> parts;
  auto pad = [&](int64_t size) {
    if (size == 0)
      return;
    SmallVector<int64_t> shape(from.getShape());
    shape[dimension] = size;
    parts.push_back(
        c.zeros(RankedTensorType::get(shape, from.getElementType())));
  };
  pad(offset);
  parts.push_back(grads[0]);
  pad(after);
  return {parts.size() == 1 ? parts.front() : c.concatenate(parts, dimension)};
}

LogicalResult ConcatenateOp::verify() {
  auto to = cast<RankedTensorType>(getType());
  int64_t dimension = getDimension();
  if (failed(verifyDimension(*this, dimension, to.getRank())))
    return failure();
  if (to.isDynamicDim(dimension))
    return emitOpError("cannot join along the batch");
  int64_t total = 0;
  for (Value operand : getOperands()) {
    auto from = cast<RankedTensorType>(operand.getType());
    SmallVector<int64_t> wanted(to.getShape());
    if (from.getRank() == to.getRank())
      wanted[dimension] = from.getDimSize(dimension);
    if (from != RankedTensorType::get(wanted, to.getElementType()))
      return emitOpError("cannot place ") << from << " into " << to;
    total += from.getDimSize(dimension);
  }
  if (total != to.getDimSize(dimension))
    return emitOpError("joins ")
           << total << " along dimension " << dimension
           << ", but the result has size " << to.getDimSize(dimension);
  return success();
}

Values ConcatenateOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Values result;
  int64_t offset = 0;
  for (Value operand : getOperands()) {
    int64_t size = tensorType(operand).getDimSize(getDimension());
    result.push_back(c.slice(grads[0], getDimension(), offset, size));
    offset += size;
  }
  return result;
}

OperandGroups ConcatenateOp::getLinearGroups() {
  return {llvm::to_vector<2>(llvm::seq(getNumOperands()))};
}

} // namespace kiln
