// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/frontend/ModelBuilder.h"

#include <cmath>

using namespace mlir;

namespace kiln {

ModelBuilder::ModelBuilder(ModuleOp module, Type precision)
    : c(builder, module.getLoc()), module(module), precision(precision),
      builder(OpBuilder::atBlockEnd(module.getBody())) {
  function = func::FuncOp::create(builder, module.getLoc(), "model",
                                  builder.getFunctionType({}, {}));
  function->setAttr(kLossAttribute, builder.getUnitAttr());
  builder.setInsertionPointToEnd(function.addEntryBlock());
}

Value ModelBuilder::addArgument(RankedTensorType type,
                                NamedAttribute attribute) {
  unsigned index = function.getNumArguments();
  (void)function.insertArgument(
      index, type, builder.getDictionaryAttr(attribute), module.getLoc());
  return function.getArgument(index);
}

static RankedTensorType batchOf(ArrayRef<int64_t> sampleShape, Type element) {
  SmallVector<int64_t> shape = {ShapedType::kDynamic};
  shape.append(sampleShape.begin(), sampleShape.end());
  return RankedTensorType::get(shape, element);
}

Value ModelBuilder::input(StringRef name, ArrayRef<int64_t> sampleShape) {
  return addArgument(
      batchOf(sampleShape, precision),
      builder.getNamedAttr(kInputAttribute, builder.getStringAttr(name)));
}

Value ModelBuilder::integers(StringRef name, ArrayRef<int64_t> sampleShape) {
  return addArgument(
      batchOf(sampleShape, builder.getI32Type()),
      builder.getNamedAttr(kInputAttribute, builder.getStringAttr(name)));
}

Value ModelBuilder::parameter(StringRef name, ArrayRef<int64_t> shape,
                              Start start) {
  if (Value known = parameters.lookup(name))
    return known;
  auto type = RankedTensorType::get(shape, precision);
  OpBuilder declarations(function);
  VariableOp::create(declarations, module.getLoc(), name, type, Role::parameter,
                     start.kind, llvm::APFloat(start.a), llvm::APFloat(start.b),
                     /*decays=*/shape.size() > 1);
  auto symbol = FlatSymbolRefAttr::get(builder.getContext(), name);
  return parameters[name] = addArgument(
             type, builder.getNamedAttr(kVariableAttribute, symbol));
}

Value ModelBuilder::linear(StringRef name, Value x, int64_t out, Start weight,
                           std::optional<Start> bias) {
  int64_t in = tensorType(x).getShape().back();
  Value matrix = parameter((name + ".weight").str(), {in, out}, weight);
  std::string rows = indexLetters(tensorType(x).getRank() - 1);
  Value y = c.contract(rows + "x," + "xy->" + rows + "y", x, matrix);
  if (!bias)
    return y;
  return c.add(
      y, c.spreadColumns(parameter((name + ".bias").str(), {out}, *bias), y));
}

Value ModelBuilder::layerNorm(StringRef name, Value x, bool hasShift) {
  RankedTensorType type = tensorType(x);
  int64_t width = type.getShape().back();
  Value scale = parameter((name + ".weight").str(), {width}, {InitKind::ones});
  Value shift =
      hasShift ? parameter((name + ".bias").str(), {width}, {}) : Value();
  auto rows = RankedTensorType::get(type.getShape().drop_back(), precision);
  return LayerNormOp::create(builder, c.loc, type, rows, rows, x, scale, shift,
                             llvm::APFloat(1e-5))
      .getResult();
}

Value ModelBuilder::embedding(StringRef name, Value ids, int64_t rows,
                              int64_t width, Start start) {
  Value table = parameter(name, {rows, width}, start);
  SmallVector<int64_t> shape(tensorType(ids).getShape());
  shape.push_back(width);
  return EmbeddingOp::create(
      builder, c.loc, RankedTensorType::get(shape, precision), table, ids);
}

Value ModelBuilder::gelu(Value x) {
  return GeluOp::create(builder, c.loc, x.getType(), x, /*tanh=*/true);
}

Value ModelBuilder::relu(Value x) { return ReluOp::create(builder, c.loc, x); }

Value ModelBuilder::causalAttention(Value packed, int64_t heads) {
  ArrayRef<int64_t> shape = tensorType(packed).getShape();
  int64_t batch = shape[0], sequence = shape[1], hidden = shape[2] / 3,
          width = hidden / heads;
  Value split = c.reshape(packed, {batch, sequence, 3, heads, width});
  auto result =
      RankedTensorType::get({batch, sequence, heads, width}, precision);
  auto lse = RankedTensorType::get({batch, heads, sequence}, precision);
  auto scale = builder.getF64FloatAttr(1 / std::sqrt(double(width)));
  auto attention = AttentionOp::create(builder, c.loc, result, lse, split,
                                       scale, builder.getUnitAttr());
  return c.reshape(attention.getResult(), {batch, sequence, hidden});
}

// A sum of ones: the schedule evaluates it over the whole batch, whatever the
// micro-batch.
Value ModelBuilder::countRows(Value labels) {
  auto ones = RankedTensorType::get(tensorType(labels).getShape(), precision);
  Value one = c.constant(1, precision);
  return c.sumAll(c.broadcast("->" + indexLetters(ones.getRank()), one, ones));
}

Loss ModelBuilder::crossEntropy(Value logits, Value labels) {
  auto scalar = RankedTensorType::get({}, precision);
  return {SoftmaxCrossEntropyOp::create(builder, c.loc, scalar, logits, labels),
          countRows(labels)};
}

Loss ModelBuilder::headCrossEntropy(Value x, Value weight, Value labels) {
  auto scalar = RankedTensorType::get({}, precision);
  auto head = HeadLossOp::create(builder, c.loc, scalar, x.getType(),
                                 weight.getType(), x, weight, labels);
  return {head.getTotal(), countRows(labels)};
}

void ModelBuilder::finish(Loss loss) {
  func::ReturnOp::create(builder, c.loc,
                         ValueRange{loss.total, loss.denominator});
  function.setType(builder.getFunctionType(
      function.getArgumentTypes(),
      {loss.total.getType(), loss.denominator.getType()}));
  function.setResultAttr(1, kDenominatorAttribute, builder.getUnitAttr());
}

} // namespace kiln
