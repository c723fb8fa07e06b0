// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/KernelBody.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/TypeUtilities.h"

#include <limits>

using namespace mlir;

namespace kiln::cpu {

MemRefType getBufferType(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  Type element = tensor.getElementType();
  if (element.isInteger(1))
    element = IntegerType::get(type.getContext(), 8);
  return MemRefType::get({tensor.getNumElements()}, element);
}

SmallVector<Type> getBufferTypes(Block &body, int64_t scratchElements,
                                 Type scratchElement) {
  SmallVector<Type> types;
  for (Type type : body.getArgumentTypes())
    types.push_back(getBufferType(type));
  for (Type type : body.getTerminator()->getOperandTypes())
    types.push_back(getBufferType(type));
  if (scratchElements)
    types.push_back(MemRefType::get({scratchElements}, scratchElement));
  return types;
}

Value IndexBuilder::constant(int64_t value) const {
  return arith::ConstantIndexOp::create(builder, loc, value);
}
Value IndexBuilder::add(Value a, Value b) const {
  return builder.createOrFold<arith::AddIOp>(loc, a, b);
}
Value IndexBuilder::mul(Value a, int64_t b) const {
  return b == 1 ? a : builder.createOrFold<arith::MulIOp>(loc, a, constant(b));
}
Value IndexBuilder::div(Value a, int64_t b) const {
  return b == 1 ? a : builder.createOrFold<arith::DivUIOp>(loc, a, constant(b));
}
Value IndexBuilder::rem(Value a, int64_t b) const {
  return b == 1 ? constant(0)
                : builder.createOrFold<arith::RemUIOp>(loc, a, constant(b));
}
Value IndexBuilder::min(Value a, Value b) const {
  return builder.createOrFold<arith::MinUIOp>(loc, a, b);
}

SmallVector<Value> IndexBuilder::delinearise(Value position,
                                             ArrayRef<int64_t> sizes) const {
  SmallVector<Value> indices(sizes.size());
  for (size_t index = sizes.size(); index-- > 0;) {
    indices[index] = index == 0 ? position : rem(position, sizes[index]);
    if (index > 0)
      position = div(position, sizes[index]);
  }
  return indices;
}

Value loadElement(OpBuilder &builder, Location loc, Value buffer,
                  Value position, Type elementType) {
  Value value = memref::LoadOp::create(builder, loc, buffer, position);
  if (!elementType.isInteger(1))
    return value;
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getI8IntegerAttr(0));
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, value,
                               zero);
}

void storeElement(OpBuilder &builder, Location loc, Value value, Value buffer,
                  Value position) {
  if (value.getType().isInteger(1))
    value = arith::ExtUIOp::create(builder, loc, builder.getI8Type(), value);
  memref::StoreOp::create(builder, loc, value, buffer, position);
}

TypedAttr getNeutral(OpBuilder &builder, Reduction reduction, Type type) {
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  double value = reduction == Reduction::max
                     ? -std::numeric_limits<double>::infinity()
                     : 0.0;
  TypedAttr scalar = builder.getFloatAttr(element, value);
  if (auto vector = dyn_cast<VectorType>(type))
    return DenseElementsAttr::get(vector, Attribute(scalar));
  return scalar;
}

Value combine(OpBuilder &builder, Location loc, Reduction reduction, Value a,
              Value b) {
  if (reduction == Reduction::max)
    return arith::MaximumFOp::create(builder, loc, a, b);
  return arith::AddFOp::create(builder, loc, a, b);
}

} // namespace kiln::cpu
