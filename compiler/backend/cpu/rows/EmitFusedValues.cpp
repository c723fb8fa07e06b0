// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values of a fused kernel: loaded, computed, or read back from where an
// earlier pass has stored them.
#include "compiler/backend/cpu/rows/FusedEmitter.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace kiln::cpu {

// Addresses and scalars of the row, before any loop over its columns that could
// share them.
void FusedEmitter::prepareRow() {
  rowKnown.clear();
  rowBases.clear();
  for (BlockArgument argument : body.getArguments())
    if (domain.contains(argument)) {
      rowBase(argument);
      if (!domain.isPoint(argument))
        rowValue(argument);
    }
  for (Value result : results)
    rowBase(result);
}

// Position of the row's first element in a buffer of `value`.
Value FusedEmitter::rowBase(Value value) {
  if (Value known = rowBases.lookup(value))
    return known;
  Value position = index().constant(0);
  for (unsigned dim : domain.getDims(value))
    if (dim < domain.getSplit())
      position = index().add(index().mul(position, domain.getSizes()[dim]),
                             rowIndices[dim]);
  if (domain.isPoint(value))
    position = index().mul(position, domain.getColumns());
  return rowBases[value] = position;
}

Value FusedEmitter::rowValue(Value value) {
  if (Value known = rowKnown.lookup(value))
    return known;
  Value result;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Type element = getElementTypeOrSelf(value.getType());
    result =
        loadElement(builder, loc, input(argument), rowBase(value), element);
  } else {
    auto op = cast<Structured>(value.getDefiningOp());
    SmallVector<Value> elements;
    for (Value operand : op->getOperands())
      elements.push_back(rowValue(operand));
    result = op.buildBody(builder, loc, elements);
  }
  return rowKnown[value] = result;
}

Value FusedEmitter::widen(Value scalar) {
  if (width == 1)
    return scalar;
  return vector::BroadcastOp::create(
      builder, loc, VectorType::get({width}, scalar.getType()), scalar);
}

Value FusedEmitter::pointValue(Value value, Points &points) {
  if (Value known = points.known.lookup(value))
    return known;
  Value result = domain.isPoint(value) ? computePoint(value, points)
                                       : widen(rowValue(value));
  return points.known[value] = result;
}

Value FusedEmitter::computePoint(Value value, Points &points) {
  Type element = getElementTypeOrSelf(value.getType());
  if (auto argument = dyn_cast<BlockArgument>(value))
    return loadPoints(input(argument),
                      index().add(rowBase(value), points.column), element,
                      points.mask);
  // Values that an earlier pass has stored are read back, not recomputed.
  if (access.isReadBack(value, points.pass))
    return loadPoints(output(access.getOutput(value)),
                      index().add(rowBase(value), points.column), element,
                      points.mask);
  Operation *op = value.getDefiningOp();
  if (auto embedding = dyn_cast<EmbeddingOp>(op))
    return gather(embedding, points);
  if (auto iota = dyn_cast<IotaOp>(op))
    return columnNumbers(iota, points);
  SmallVector<Value> elements;
  for (Value operand : op->getOperands())
    elements.push_back(pointValue(operand, points));
  return cast<Structured>(op).buildBody(builder, loc, elements);
}

Value FusedEmitter::gather(EmbeddingOp op, Points &points) {
  Value id = arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                        rowValue(op.getIds()));
  Value position =
      index().add(index().mul(id, domain.getColumns()), points.column);
  Type element = getElementTypeOrSelf(op.getTable().getType());
  return loadPoints(input(cast<BlockArgument>(op.getTable())), position,
                    element, points.mask);
}

Value FusedEmitter::columnNumbers(IotaOp op, Points &points) {
  Type element = getElementTypeOrSelf(op.getType());
  Value first =
      arith::IndexCastOp::create(builder, loc, element, points.column);
  if (width == 1)
    return first;
  SmallVector<Attribute> steps;
  for (int64_t lane = 0; lane < width; ++lane)
    steps.push_back(builder.getIntegerAttr(element, lane));
  auto type = VectorType::get({width}, element);
  Value lanes = arith::ConstantOp::create(builder, loc,
                                          DenseElementsAttr::get(type, steps));
  return arith::AddIOp::create(builder, loc, widen(first), lanes);
}

Value FusedEmitter::tailMask(int64_t count) {
  SmallVector<Attribute> lanes;
  for (int64_t lane = 0; lane < width; ++lane)
    lanes.push_back(builder.getBoolAttr(lane < count));
  auto type = VectorType::get({width}, builder.getI1Type());
  return arith::ConstantOp::create(builder, loc,
                                   DenseElementsAttr::get(type, lanes));
}

Value FusedEmitter::loadPoints(Value buffer, Value position, Type element,
                               Value mask) {
  if (width == 1)
    return loadElement(builder, loc, buffer, position, element);
  auto stored = cast<MemRefType>(buffer.getType()).getElementType();
  auto type = VectorType::get({width}, stored);
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  Value value;
  if (mask)
    value = vector::MaskedLoadOp::create(builder, loc, type, buffer, position,
                                         mask, zero);
  else
    value = vector::LoadOp::create(builder, loc, type, buffer, position);
  if (!element.isInteger(1))
    return value;
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, value,
                               zero);
}

void FusedEmitter::storePoints(Value value, Value buffer, Value position,
                               Value mask) {
  if (width == 1)
    return storeElement(builder, loc, value, buffer, position);
  auto type = cast<VectorType>(value.getType());
  if (type.getElementType().isInteger(1))
    value = arith::ExtUIOp::create(builder, loc,
                                   type.clone(builder.getI8Type()), value);
  if (mask)
    vector::MaskedStoreOp::create(builder, loc, buffer, position, mask, value);
  else
    vector::StoreOp::create(builder, loc, value, buffer, position);
}

} // namespace kiln::cpu
