// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Appends the backward pass to each function marked `kiln.loss`:
//   (arguments) -> totals    becomes    (arguments) -> totals, d(sum of
//   totals)/d(arguments)
// Visits ops in reverse and asks each for its vector-Jacobian product, so an op
// becomes trainable by implementing Differentiable and nothing here changes.
#include "compiler/differentiate/Recomputation.h"
#include "compiler/differentiate/SampleSums.h"
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Origin.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_DIFFERENTIATE
#include "compiler/pipeline/Passes.h.inc"

namespace {

/// Gradient of the loss with respect to each value seen so far.
class GradientMap {
public:
  explicit GradientMap(OpBuilder &builder) : builder(builder) {}

  /// Gradients of this value have elements of this type instead of its own.
  void setType(Value value, Type element) { types[value] = element; }
  RankedTensorType typeOf(Value value) const {
    RankedTensorType type = tensorType(value);
    Type element = types.lookup(value);
    return element ? type.clone(element) : type;
  }

  // A value that is read twice receives the sum of both gradients.
  void add(Value value, Value grad) {
    Type element = typeOf(value).getElementType();
    grad = round(grad, element);
    Value &slot = grads[value];
    if (!slot) {
      slot = grad;
      return;
    }
    Composer c(builder, value.getLoc());
    slot = c.convert(c.add(c.widen(slot), c.widen(grad)), element);
  }

  Value get(Value value) const { return grads.lookup(value); }

  bool reaches(Operation &op) const {
    return llvm::any_of(op.getResults(),
                        [&](Value result) { return bool(get(result)); });
  }

private:
  // An op that rounds its results gives them the type at once.
  Value round(Value grad, Type element) {
    auto maker = grad.getDefiningOp<Accumulating>();
    bool canRound = maker && grad.use_empty() && !maker.isStatistic(grad) &&
                    element == getOperandType(maker);
    if (!canRound)
      return Composer(builder, grad.getLoc()).convert(grad, element);
    grad.setType(tensorType(grad).clone(element));
    return grad;
  }

  OpBuilder &builder;
  DenseMap<Value, Value> grads;
  DenseMap<Value, Type> types;
};

struct DifferentiatePass : impl::DifferentiateBase<DifferentiatePass> {
  using DifferentiateBase::DifferentiateBase;

  void runOnOperation() override {
    if (!llvm::is_contained({"none", "attention", "full"}, recompute)) {
      getOperation().emitError("wants to recompute '")
          << recompute << "'; known are none, attention and full";
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(kLossAttribute) &&
          (failed(verifySampleSums(function)) ||
           failed(differentiate(function))))
        return signalPassFailure();
  }

  LogicalResult differentiate(func::FuncOp function);
};

} // namespace

static bool isFloatTensor(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<FloatType>(tensor.getElementType());
}

// One weight per total: a new argument where totals have denominators or the
// loss is scaled, else 1.
static LogicalResult seedTotals(func::FuncOp function, OpBuilder &builder,
                                GradientMap &gradients) {
  auto results =
      cast<func::ReturnOp>(function.front().getTerminator()).getOperands();
  SmallVector<Value> totals;
  unsigned denominators = 0;
  for (auto [index, value] : llvm::enumerate(results)) {
    if (function.getResultAttr(index, kRunningAttribute))
      continue;
    if (function.getResultAttr(index, kDenominatorAttribute)) {
      ++denominators;
      continue;
    }
    if (!isFloatTensor(value.getType()) || tensorType(value).getRank() != 0)
      return function.emitError("returns a loss of type ")
             << value.getType() << "; wanted a float scalar";
    totals.push_back(value);
  }
  if (denominators != 0 && denominators != totals.size())
    return function.emitError("returns ")
           << totals.size() << " totals and " << denominators
           << " denominators; wanted as many";
  auto policy =
      function->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(
          kPrecisionAttribute);
  bool isWeighted = denominators || (policy && policy.get(kLossScalePart));
  for (Value total : totals) {
    Value weight;
    if (isWeighted) {
      unsigned index = function.getNumArguments();
      if (failed(function.insertArgument(
              index, total.getType(),
              builder.getDictionaryAttr(
                  builder.getNamedAttr(kScaleAttribute, builder.getUnitAttr())),
              function.getLoc())))
        return failure();
      weight = function.getArgument(index);
    } else {
      weight = Composer(builder, total.getLoc())
                   .constant(1, tensorType(total).getElementType());
    }
    gradients.add(total, weight);
  }
  return success();
}

// The layer of all ops that read a parameter, also through ops on parameters
// alone, such as its rounding. Null if they differ.
static Attribute findReadingLayer(Value parameter) {
  Attribute layer;
  for (Operation *user : parameter.getUsers()) {
    Attribute found = user->getAttr(kLayerAttribute);
    if (!found && user->getNumResults() == 1 &&
        tensorType(user->getResult(0)).hasStaticShape())
      found = findReadingLayer(user->getResult(0));
    if (!found || (layer && layer != found))
      return nullptr;
    layer = found;
  }
  return layer;
}

// Moves the layer of ops and parameters into their locations, which gradient
// rules pass on.
static void locateLayers(func::FuncOp function) {
  for (Operation &op : function.front())
    if (Attribute layer = op.getAttr(kLayerAttribute))
      op.setLoc(withOrigin(op.getLoc(), kLayerAttribute, layer));
  for (BlockArgument argument : function.getArguments()) {
    auto name = function.getArgAttrOfType<FlatSymbolRefAttr>(
        argument.getArgNumber(), kVariableAttribute);
    Attribute layer = name ? findReadingLayer(argument) : nullptr;
    if (!layer)
      continue;
    argument.setLoc(withOrigin(argument.getLoc(), kLayerAttribute, layer));
    if (auto variable =
            SymbolTable::lookupNearestSymbolFrom<VariableOp>(function, name))
      variable->setLoc(withOrigin(variable.getLoc(), kLayerAttribute, layer));
  }
}

// Marks all ops that are not part of the forward pass.
static void locateBackward(func::FuncOp function, ArrayRef<Operation *> ops) {
  llvm::SmallPtrSet<Operation *, 32> forward(ops.begin(), ops.end());
  auto backward = StringAttr::get(function.getContext(), kBackwardPass);
  for (Operation &op : function.front())
    if (!forward.contains(&op) && !getOrigin(op.getLoc(), kPassAttribute))
      op.setLoc(withOrigin(op.getLoc(), kPassAttribute, backward));
}

// Marks the op that computes the gradient of a parameter.
static void locateGradient(func::FuncOp function, BlockArgument parameter,
                           Value gradient) {
  auto name = function.getArgAttrOfType<FlatSymbolRefAttr>(
      parameter.getArgNumber(), kVariableAttribute);
  Operation *op = gradient.getDefiningOp();
  if (auto variable = name ? SymbolTable::lookupNearestSymbolFrom<VariableOp>(
                                 function, name)
                           : VariableOp())
    name = variable.getCopyOf() ? variable.getCopyOfAttr() : name;
  if (name && op)
    op->setLoc(withOrigin(op->getLoc(), kGradientOfAttribute, name.getAttr()));
}

LogicalResult DifferentiatePass::differentiate(func::FuncOp function) {
  locateLayers(function);
  Operation *terminator = function.front().getTerminator();
  OpBuilder builder(terminator);
  SmallVector<BlockArgument> wanted;
  for (BlockArgument argument : function.getArguments())
    if (isFloatTensor(argument.getType()) &&
        !function.getArgAttr(argument.getArgNumber(), kInputAttribute) &&
        !function.getArgAttr(argument.getArgNumber(), kStateAttribute))
      wanted.push_back(argument);
  SmallVector<Operation *> ops;
  for (Operation &op : function.front().without_terminator())
    ops.push_back(&op);
  GradientMap gradients(builder);
  for (BlockArgument argument : wanted)
    if (auto type = function.getArgAttrOfType<TypeAttr>(argument.getArgNumber(),
                                                        kGradientTypeAttribute))
      gradients.setType(argument, type.getValue());
  if (failed(seedTotals(function, builder, gradients)))
    return failure();
  Recomputation recomputation(ops, recompute);
  for (Operation *op : llvm::reverse(ops)) {
    if (!gradients.reaches(*op))
      continue; // The loss does not depend on it.
    auto differentiable = dyn_cast<Differentiable>(op);
    if (!differentiable && op->getNumOperands() == 0)
      continue; // A constant.
    if (!differentiable)
      return op->emitOpError(
          "is not differentiable, but the loss depends on it");
    SmallVector<Value> resultGrads;
    for (Value result : op->getResults())
      resultGrads.push_back(gradients.get(result));
    SmallVector<Value> operandGrads =
        differentiable.buildVjp(builder, resultGrads);
    if (operandGrads.empty())
      return op->emitOpError("has a result that the loss depends on and that "
                             "cannot be differentiated");
    for (auto [operand, grad] :
         llvm::zip_equal(op->getOperands(), operandGrads))
      if (grad)
        gradients.add(operand, grad);
    recomputation.follow(
        terminator,
        *llvm::find_if(resultGrads, [](Value grad) { return bool(grad); }));
  }
  if (failed(recomputation.run()))
    return failure();
  locateBackward(function, ops);
  SmallVector<Type> types(function.getResultTypes());
  for (BlockArgument argument : wanted) {
    Value grad = gradients.get(argument);
    if (!grad)
      grad = Composer(builder, argument.getLoc())
                 .zeros(gradients.typeOf(argument));
    locateGradient(function, argument, grad);
    terminator->insertOperands(terminator->getNumOperands(), grad);
    types.push_back(grad.getType());
  }
  function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  // The result attributes are an array, which must grow with the results.
  if (auto attributes = function.getAllResultAttrs()) {
    SmallVector<Attribute> grown(attributes.begin(), attributes.end());
    grown.resize(types.size(), builder.getDictionaryAttr({}));
    function.setAllResultAttrs(grown);
  }
  return success();
}

} // namespace kiln
