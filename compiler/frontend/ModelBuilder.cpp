// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/frontend/ModelBuilder.h"

#include "llvm/Support/SaveAndRestore.h"
#include "llvm/Support/xxhash.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace kiln {

ModelBuilder::ModelBuilder(ModuleOp module, Purpose purpose)
    : c(builder, module.getLoc()), module(module), purpose(purpose),
      builder(OpBuilder::atBlockEnd(module.getBody())) {
  if (isTraining())
    builder.setListener(&marks);
  function = func::FuncOp::create(builder, module.getLoc(),
                                  isTraining() ? "model" : "evaluate",
                                  builder.getFunctionType({}, {}));
  builder.setInsertionPointToEnd(function.addEntryBlock());
}

ModelBuilder::NameScope::NameScope(ModelBuilder &model, StringRef name)
    : model(model), outer(model.c.loc) {
  model.c.loc = NameLoc::get(model.builder.getStringAttr(name), outer);
}

void ModelBuilder::Marks::notifyOperationInserted(Operation *op,
                                                  OpBuilder::InsertPoint) {
  if (!layer)
    return;
  Builder attributes(op->getContext());
  op->setAttr(kLayerAttribute, attributes.getI64IntegerAttr(*layer));
  if (isAttention)
    op->setAttr(kAttentionAttribute, attributes.getUnitAttr());
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
      batchOf(sampleShape, builder.getF32Type()),
      builder.getNamedAttr(kInputAttribute, builder.getStringAttr(name)));
}

Value ModelBuilder::integers(StringRef name, ArrayRef<int64_t> sampleShape) {
  return addArgument(
      batchOf(sampleShape, builder.getI32Type()),
      builder.getNamedAttr(kInputAttribute, builder.getStringAttr(name)));
}

// The first function that names the variable declares it.
void ModelBuilder::declare(StringRef name, RankedTensorType type, Role role,
                           Start start, Split split) {
  if (module.lookupSymbol(name))
    return;
  OpBuilder declarations(function);
  auto variable =
      VariableOp::create(declarations, module.getLoc(), name, type, role);
  variable.setInit(start.kind);
  variable.setA(llvm::APFloat(start.a));
  variable.setB(llvm::APFloat(start.b));
  variable.setDecays(role == Role::parameter && type.getRank() > 1);
  if (!split.dimension)
    return;
  MLIRContext *context = builder.getContext();
  SmallVector<Attribute> cuts(
      type.getRank(), CutAttr::get(context, builder.getArrayAttr({}), 1, 1));
  cuts[*split.dimension] = CutAttr::get(
      context, builder.getStrArrayAttr({"tensor"}), split.blocks, split.unit);
  variable.setShardingAttr(ShardingAttr::get(
      context, builder.getArrayAttr(cuts), ArrayAttr(), ArrayAttr()));
}

Value ModelBuilder::addVariable(StringRef name, RankedTensorType type,
                                Role role, Start start, StringRef attribute,
                                Split split) {
  if (Value known = arguments.lookup(name))
    return known;
  declare(name, type, role, start, split);
  auto symbol = FlatSymbolRefAttr::get(builder.getContext(), name);
  return arguments[name] =
             addArgument(type, builder.getNamedAttr(attribute, symbol));
}

Value ModelBuilder::parameter(StringRef name, ArrayRef<int64_t> shape,
                              Start start, Split split) {
  return addVariable(name, RankedTensorType::get(shape, builder.getF32Type()),
                     Role::parameter, start, kVariableAttribute, split);
}

Value ModelBuilder::getSamples() {
  Value &samples = arguments["sample"];
  return samples ? samples : samples = integers("sample", {});
}

Value ModelBuilder::getStep() {
  return addVariable("step", RankedTensorType::get({}, builder.getF64Type()),
                     Role::state, {}, kStateAttribute);
}

Value ModelBuilder::getSeed() {
  return addVariable(kSeedSetting,
                     RankedTensorType::get({}, builder.getI64Type()),
                     Role::setting, {}, kStateAttribute);
}

Value ModelBuilder::linear(Value x, Value weight, Value bias,
                           LinearLayout layout) {
  std::string rows = indexLetters(tensorType(x).getRank() - 1);
  std::string matrix = layout == LinearLayout::InOut ? "xy" : "yx";
  Value y = c.contract(rows + "x," + matrix + "->" + rows + "y", x, weight);
  return bias ? c.add(y, c.spreadColumns(bias, y)) : y;
}

Value ModelBuilder::linear(StringRef name, Value x, int64_t out, Start weight,
                           std::optional<Start> bias, LinearLayout layout,
                           Parallel parallel) {
  NameScope scope(*this, name);
  int64_t in = tensorType(x).getShape().back();
  SmallVector<int64_t> shape = {in, out};
  Split split = parallel.weight(1, 0);
  if (layout == LinearLayout::OutIn) {
    std::swap(shape[0], shape[1]);
    split = parallel.weight(0, 1);
  }
  Value matrix = parameter((name + ".weight").str(), shape, weight, split);
  Value vector =
      bias ? parameter((name + ".bias").str(), {out}, *bias, parallel.vector())
           : Value();
  return linear(x, matrix, vector, layout);
}

Value ModelBuilder::layerNorm(StringRef name, Value x, bool hasShift,
                              double epsilon) {
  NameScope scope(*this, name);
  RankedTensorType type = tensorType(x);
  int64_t width = type.getShape().back();
  Value scale = parameter((name + ".weight").str(), {width}, {InitKind::ones});
  Value shift =
      hasShift ? parameter((name + ".bias").str(), {width}, {}) : Value();
  auto rows =
      RankedTensorType::get(type.getShape().drop_back(), builder.getF32Type());
  return LayerNormOp::create(builder, c.loc, type, rows, rows, x, scale, shift,
                             llvm::APFloat(epsilon))
      .getResult();
}

void ModelBuilder::follow(StringRef variable, Value total, double momentum) {
  auto symbol = FlatSymbolRefAttr::get(builder.getContext(), variable);
  auto fields = builder.getDictionaryAttr(
      {builder.getNamedAttr("variable", symbol),
       builder.getNamedAttr("momentum", builder.getF64FloatAttr(momentum))});
  addResult(total, "", builder.getNamedAttr(kRunningAttribute, fields));
}

Value ModelBuilder::batchNorm(StringRef name, Value x, int64_t group,
                              double momentum, Split split) {
  NameScope scope(*this, name);
  constexpr double kEpsilon = 1e-5;
  RankedTensorType type = tensorType(x);
  int64_t channels = type.getShape().back();
  auto vector = RankedTensorType::get(channels, builder.getF32Type());
  Value scale =
      parameter((name + ".weight").str(), {channels}, {InitKind::ones}, split);
  Value shift = parameter((name + ".bias").str(), {channels}, {}, split);
  std::string meanName = (name + ".running_mean").str(),
              varianceName = (name + ".running_var").str();
  if (!isTraining()) {
    Value mean =
        addVariable(meanName, vector, Role::statistic, {}, kVariableAttribute);
    Value variance = addVariable(varianceName, vector, Role::statistic,
                                 {InitKind::ones}, kVariableAttribute);
    Value slope = c.mul(scale, c.rsqrt(c.add(variance, kEpsilon)));
    Value centred = c.sub(x, c.spreadColumns(mean, x));
    return c.add(c.mul(centred, c.spreadColumns(slope, x)),
                 c.spreadColumns(shift, x));
  }
  auto perSample = RankedTensorType::get({ShapedType::kDynamic, channels},
                                         builder.getF32Type());
  auto norm = BatchNormOp::create(
      builder, c.loc, type, perSample, perSample, x, scale, shift,
      builder.getI64IntegerAttr(group), builder.getF64FloatAttr(kEpsilon));
  declare(meanName, vector, Role::statistic, {});
  declare(varianceName, vector, Role::statistic, {InitKind::ones});
  // Running variances are unbiased; the variances that normalise are not.
  double count = double(group);
  for (int64_t size : type.getShape().drop_front().drop_back())
    count *= double(size);
  double correction = count > 1 ? count / (count - 1) : 1;
  follow(meanName, c.sum("bc->c", norm.getMean()), momentum);
  follow(varianceName, c.mul(c.sum("bc->c", norm.getVariance()), correction),
         momentum);
  return norm.getResult();
}

Value ModelBuilder::embedding(StringRef name, Value ids, int64_t rows,
                              int64_t width, Start start, Split split) {
  NameScope scope(*this, name);
  Value table = parameter(name, {rows, width}, start, split);
  SmallVector<int64_t> shape(tensorType(ids).getShape());
  shape.push_back(width);
  return EmbeddingOp::create(builder, c.loc,
                             RankedTensorType::get(shape, builder.getF32Type()),
                             table, ids,
                             /*first=*/Value());
}

Value ModelBuilder::addPositions(StringRef name, Value x, int64_t rows,
                                 Start start) {
  NameScope scope(*this, name);
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value table = parameter(name, {rows, shape[2]}, start);
  if (rows != shape[1])
    table = c.slice(table, 0, 0, shape[1]);
  return c.add(x, c.broadcast("sd->bsd", table, tensorType(x)));
}

Value ModelBuilder::geluTanh(Value x) {
  return GeluOp::create(builder, c.loc, x.getType(), x, /*tanh=*/true);
}

Value ModelBuilder::gelu(Value x) {
  return GeluOp::create(builder, c.loc, x.getType(), x, /*tanh=*/false);
}

Value ModelBuilder::relu(Value x) { return ReluOp::create(builder, c.loc, x); }

Value ModelBuilder::dropout(StringRef name, Value x, double rate) {
  NameScope scope(*this, name);
  if (!isTraining() || rate == 0)
    return x;
  auto stream = static_cast<int32_t>(llvm::xxh3_64bits(name));
  return DropoutOp::create(builder, c.loc, x.getType(), x, getSamples(),
                           getStep(), getSeed(),
                           /*elements=*/Value(), builder.getF64FloatAttr(rate),
                           builder.getI64IntegerAttr(stream));
}

Value ModelBuilder::attention(StringRef name, Value packed, int64_t heads,
                              bool isCausal, Value lengths,
                              double dropoutRate) {
  NameScope scope(*this, name);
  ArrayRef<int64_t> shape = tensorType(packed).getShape();
  int64_t batch = shape[0], sequence = shape[1], hidden = shape[2] / 3,
          width = hidden / heads;
  double scale = 1 / std::sqrt(double(width));
  Value split = c.reshape(packed, {batch, sequence, 3, heads, width});
  Value result;
  llvm::SaveAndRestore isAttention(marks.isAttention, true);
  if (isTraining() && dropoutRate > 0) {
    result = attendInParts(name, split, isCausal, lengths, scale, dropoutRate);
  } else {
    auto type = RankedTensorType::get({batch, sequence, heads, width},
                                      builder.getF32Type());
    auto lse =
        RankedTensorType::get({batch, heads, sequence}, builder.getF32Type());
    result = AttentionOp::create(builder, c.loc, type, lse, split, lengths,
                                 builder.getF64FloatAttr(scale),
                                 isCausal ? builder.getUnitAttr() : UnitAttr())
                 .getResult();
  }
  return c.reshape(result, {batch, sequence, hidden});
}

// Dropout needs the probabilities materialised, so kiln.attention does not fit.
Value ModelBuilder::attendInParts(StringRef name, Value split, bool isCausal,
                                  Value lengths, double scale,
                                  double dropoutRate) {
  ArrayRef<int64_t> shape = tensorType(split).getShape();
  auto part = [&](int64_t index) {
    return c.reshape(c.slice(split, 2, index, 1),
                     {shape[0], shape[1], shape[3], shape[4]});
  };
  Value scores = c.mul(c.contract("bshd,bthd->bhst", part(0), part(1)), scale);
  scores = c.maskScores(scores, isCausal, lengths);
  Value weights = SoftmaxOp::create(builder, c.loc, scores);
  return c.contract("bhst,bthd->bshd", dropout(name, weights, dropoutRate),
                    part(2));
}

Value ModelBuilder::convolution(StringRef name, Value x, int64_t out,
                                int64_t window, int64_t stride, Start start,
                                Parallel parallel) {
  NameScope scope(*this, name);
  int64_t in = tensorType(x).getShape().back(), padding = window / 2;
  Value filter = parameter((name + ".weight").str(), {out, in, window, window},
                           start, parallel.weight(0, 1));
  return ConvolutionOp::create(builder, c.loc, x, filter,
                               ArrayRef<int64_t>{stride, stride},
                               ArrayRef<int64_t>{padding, padding});
}

Value ModelBuilder::maxPool(Value x, int64_t window, int64_t stride,
                            int64_t padding) {
  return MaxPoolOp::create(builder, c.loc, x, ArrayRef<int64_t>{window, window},
                           ArrayRef<int64_t>{stride, stride},
                           ArrayRef<int64_t>{padding, padding});
}

// A product with one-hot rows: few rows are taken, and its gradient is a
// product too.
Value ModelBuilder::takeRows(Value x, Value positions) {
  ArrayRef<int64_t> rows = tensorType(positions).getShape();
  int64_t sequence = tensorType(x).getDimSize(1);
  auto indices =
      RankedTensorType::get({rows[0], rows[1], sequence}, builder.getI32Type());
  Value isTaken =
      c.compare(Predicate::eq, c.broadcast("bp->bps", positions, indices),
                c.broadcast("s->bps", c.iota(sequence), indices));
  return c.contract("bps,bsd->bpd", c.convert(isTaken, builder.getF32Type()),
                    x);
}

Value ModelBuilder::countLabels(Value labels) {
  Value zero =
      c.broadcast("->" + indexLetters(tensorType(labels).getRank()),
                  c.constant(0, builder.getI32Type()), tensorType(labels));
  return c.sumAll(
      c.convert(c.compare(Predicate::ge, labels, zero), builder.getF32Type()));
}

void ModelBuilder::addResult(Value value, const std::string &name,
                             ArrayRef<NamedAttribute> attributes) {
  results.push_back(value);
  resultNames.push_back(name);
  resultAttributes.push_back(builder.getDictionaryAttr(attributes));
}

void ModelBuilder::addLoss(Value total, Value count) {
  std::string number = "." + std::to_string(losses++);
  addResult(total, "total" + number);
  addResult(count, "count" + number,
            builder.getNamedAttr(kDenominatorAttribute, builder.getUnitAttr()));
}

void ModelBuilder::addCrossEntropy(Value logits, Value labels) {
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  addLoss(SoftmaxCrossEntropyOp::create(builder, c.loc, scalar, logits, labels),
          countLabels(labels));
}

void ModelBuilder::addHeadCrossEntropy(Value x, Value weight, Value labels) {
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  auto head = HeadLossOp::create(builder, c.loc, scalar, scalar,
                                 TypeRange{x.getType(), weight.getType()}, x,
                                 weight, labels);
  addLoss(head.getTotal(), countLabels(labels));
  addCorrect(head.getCorrect(), labels);
}

void ModelBuilder::countCorrect(Value logits, Value labels) {
  if (!isTraining())
    addCorrect(c.countCorrect(logits, labels), labels);
}

void ModelBuilder::addCorrect(Value correct, Value labels) {
  if (isTraining())
    return;
  addResult(correct, "correct");
  addResult(countLabels(labels), "answered");
}

void ModelBuilder::finish() {
  func::ReturnOp::create(builder, c.loc, results);
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           ValueRange(results).getTypes()));
  if (!isTraining()) {
    SmallVector<StringRef> names(resultNames.begin(), resultNames.end());
    function->setAttr(kEvaluationAttribute, builder.getStrArrayAttr(names));
    return;
  }
  function->setAttr(kLossAttribute, builder.getUnitAttr());
  function.setAllResultAttrs(resultAttributes);
}

} // namespace kiln
