// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builds the training step of a differentiated function. The function's
// arguments are variables (marked `kiln.variable`), variables without gradients
// (`kiln.state`), inputs (`kiln.input`) and weights of the losses
// (`kiln.scale`); its results are totals, denominators, totals that running
// statistics track (`kiln.running`) and the gradients of the variables. The
// prologue computes the denominators, so that every micro-batch divides its
// loss by the count over the global batch.
#include "compiler/differentiate/Optimizer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_BUILDSTEP
#include "compiler/pipeline/Passes.h.inc"

// Writes all working copies from their parameters, which may have been given
// new values: a step without samples.
static void buildRefresh(ModuleOp module, OpBuilder &builder, Location loc) {
  SmallVector<VariableOp> copies;
  for (auto variable : module.getOps<VariableOp>())
    if (variable.getCopyOf())
      copies.push_back(variable);
  if (copies.empty())
    return;
  auto step =
      StepOp::create(builder, loc, kRefreshProgram, builder.getStrArrayAttr({}),
                     builder.getStrArrayAttr({}));
  step->setAttr(kGradientsAttribute, builder.getArrayAttr({}));
  for (Region &region : step->getRegions()) {
    OpBuilder inner = OpBuilder::atBlockEnd(&region.emplaceBlock());
    if (&region == &step.getUpdate())
      for (VariableOp copy : copies) {
        Composer c(inner, copy.getLoc());
        RankedTensorType type = copy.getTensorType();
        auto parameter =
            module.lookupSymbol<VariableOp>(copy.getCopyOfAttr().getAttr());
        Value value = ReadOp::create(inner, loc, parameter.getTensorType(),
                                     *copy.getCopyOf());
        AssignOp::create(inner, loc, copy.getSymName(),
                         c.convert(value, type.getElementType()));
      }
    YieldOp::create(inner, loc, ValueRange());
  }
}

namespace {

/// The arguments and results of a differentiated function by kind.
struct Signature {
  SmallVector<unsigned> variables, states, inputs, scales;
  SmallVector<unsigned> totals, denominators, running, grads;
};

struct BuildStepPass : impl::BuildStepBase<BuildStepPass> {
  using BuildStepBase::BuildStepBase;

  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr(kLossAttribute))
        functions.push_back(function);
    for (func::FuncOp function : functions)
      if (failed(build(function)))
        return signalPassFailure();
  }

  LogicalResult build(func::FuncOp function);
  LogicalResult buildPrologue(StepOp step, func::FuncOp function,
                              const Signature &signature);
  void buildAccumulate(StepOp step, func::FuncOp function,
                       const Signature &signature);
  LogicalResult buildUpdate(StepOp step, func::FuncOp function,
                            const Signature &signature);
  BuildStepOptions getOptions() const;

  std::optional<LossScale> lossScale;
};

} // namespace

BuildStepOptions BuildStepPass::getOptions() const {
  BuildStepOptions options;
  options.optimizer = optimizer;
  options.beta1 = beta1;
  options.beta2 = beta2;
  options.epsilon = epsilon;
  options.weightDecay = weightDecay;
  options.momentum = momentum;
  options.clipNorm = clipNorm;
  return options;
}

static FailureOr<Signature> readSignature(func::FuncOp function) {
  Signature signature;
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    if (function.getArgAttr(index, kVariableAttribute))
      signature.variables.push_back(index);
    else if (function.getArgAttr(index, kStateAttribute))
      signature.states.push_back(index);
    else if (function.getArgAttr(index, kInputAttribute))
      signature.inputs.push_back(index);
    else if (function.getArgAttr(index, kScaleAttribute))
      signature.scales.push_back(index);
    else
      return function.emitError("has argument ")
             << index
             << ", which is neither a variable nor an input: mark it "
                "kiln.variable or kiln.input";
  }
  llvm::SmallDenseSet<Attribute> seen;
  for (unsigned index : signature.variables)
    if (Attribute name = function.getArgAttr(index, kVariableAttribute);
        !seen.insert(name).second)
      return function.emitError("has variable ")
             << name << " as argument " << index
             << " again; wanted one argument for all its uses";
  for (unsigned index : signature.inputs) {
    auto type = cast<RankedTensorType>(function.getArgument(index).getType());
    if (type.getRank() == 0 || !type.isDynamicDim(0))
      return function.emitError("has input argument ")
             << index << " of type " << type
             << "; wanted the batch '?' as its first dimension";
  }
  for (unsigned index : signature.variables)
    if (!isa<FloatType>(
            cast<RankedTensorType>(function.getArgument(index).getType())
                .getElementType()))
      return function.emitError("has variable argument ")
             << index << " of type " << function.getArgument(index).getType()
             << "; wanted floats";
  if (function.getNumResults() <= signature.variables.size())
    return function.emitError("returns ")
           << function.getNumResults() << " values for "
           << signature.variables.size()
           << " variables; wanted totals and gradients: run "
              "-kiln-differentiate first";
  unsigned firstGrad = function.getNumResults() - signature.variables.size();
  for (unsigned index = 0; index < firstGrad; ++index) {
    auto has = [&](StringRef name) {
      return bool(function.getResultAttr(index, name));
    };
    (has(kRunningAttribute)       ? signature.running
     : has(kDenominatorAttribute) ? signature.denominators
                                  : signature.totals)
        .push_back(index);
  }
  for (unsigned index = firstGrad; index < function.getNumResults(); ++index)
    signature.grads.push_back(index);
  bool isWeighted = !signature.scales.empty();
  if (signature.denominators.size() > signature.scales.size() ||
      (isWeighted && signature.scales.size() != signature.totals.size()))
    return function.emitError("has ")
           << signature.totals.size() << " totals, "
           << signature.denominators.size() << " denominators and "
           << signature.scales.size()
           << " weights; wanted as many: run -kiln-differentiate first";
  return signature;
}

static Value getReturned(func::FuncOp function, unsigned index) {
  return function.front().getTerminator()->getOperand(index);
}

static SmallVector<Value> addInputs(Block &block, func::FuncOp function,
                                    const Signature &signature,
                                    IRMapping &mapping) {
  SmallVector<Value> inputs;
  for (unsigned index : signature.inputs) {
    Value argument = block.addArgument(function.getArgument(index).getType(),
                                       function.getLoc());
    mapping.map(function.getArgument(index), argument);
    inputs.push_back(argument);
  }
  return inputs;
}

static void cloneBody(func::FuncOp function, OpBuilder &builder,
                      IRMapping &mapping) {
  for (Operation &op : function.front().without_terminator())
    builder.clone(op, mapping);
}

// A sum of ones over the batch, whose size is unknown before the schedule.
static Value countSamples(OpBuilder &builder, Location loc) {
  Composer c(builder, loc);
  Type element = builder.getF64Type();
  auto batch = RankedTensorType::get(ShapedType::kDynamic, element);
  return c.sum("b->", c.broadcast("->b", c.constant(1, element), batch));
}

// Ops that the denominators do not need are dead here; the next
// canonicalization removes them.
LogicalResult BuildStepPass::buildPrologue(StepOp step, func::FuncOp function,
                                           const Signature &signature) {
  Block &block = step.getPrologue().emplaceBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  IRMapping mapping;
  addInputs(block, function, signature, mapping);
  SetVector<Operation *> needed;
  SmallVector<Value> work;
  for (unsigned index : signature.denominators)
    work.push_back(getReturned(function, index));
  while (!work.empty())
    if (Operation *op = work.pop_back_val().getDefiningOp();
        op && needed.insert(op))
      llvm::append_range(work, op->getOperands());
  for (Operation *op : needed)
    for (Value operand : op->getOperands())
      if (isa<BlockArgument>(operand) && !mapping.contains(operand))
        return op->emitOpError("reads a variable for a denominator; wanted "
                               "inputs only, because the denominator "
                               "is counted before the step");
  for (Operation &op : function.front().without_terminator())
    if (needed.contains(&op))
      builder.clone(op, mapping);
  SmallVector<Value> counts;
  for (unsigned index : signature.denominators)
    counts.push_back(mapping.lookupOrDefault(getReturned(function, index)));
  if (!signature.running.empty())
    counts.push_back(countSamples(builder, function.getLoc()));
  YieldOp::create(builder, function.getLoc(), counts);
  return success();
}

void BuildStepPass::buildAccumulate(StepOp step, func::FuncOp function,
                                    const Signature &signature) {
  Block &block = step.getAccumulate().emplaceBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  Composer c(builder, function.getLoc());
  IRMapping mapping;
  addInputs(block, function, signature, mapping);
  auto readAll = [&](ArrayRef<unsigned> indices, StringRef attribute) {
    for (unsigned index : indices) {
      Value argument = function.getArgument(index);
      mapping.map(argument,
                  ReadOp::create(builder, function.getLoc(), argument.getType(),
                                 function.getArgAttrOfType<FlatSymbolRefAttr>(
                                     index, attribute)));
    }
  };
  readAll(signature.variables, kVariableAttribute);
  readAll(signature.states, kStateAttribute);
  SmallVector<Value> weights;
  for (unsigned denominator : signature.denominators) {
    Value count = block.addArgument(
        getReturned(function, denominator).getType(), function.getLoc());
    weights.push_back(c.div(c.fill(1, count), count));
  }
  // The loss that is reported is not scaled.
  for (auto [position, index] : llvm::enumerate(signature.scales)) {
    Value argument = function.getArgument(index), weight;
    if (lossScale)
      weight = c.convertLike(lossScale->read(c), argument);
    if (!weights.empty())
      weight = weight ? c.mul(weights[position], weight) : weights[position];
    mapping.map(argument, weight);
  }
  if (!signature.running.empty()) // The count of samples, for the update only.
    block.addArgument(RankedTensorType::get({}, builder.getF64Type()),
                      function.getLoc());
  cloneBody(function, builder, mapping);
  Value loss;
  for (auto [position, index] : llvm::enumerate(signature.totals)) {
    Value term = mapping.lookup(getReturned(function, index));
    if (!weights.empty())
      term = c.mul(term, weights[position]);
    loss = loss ? c.add(loss, term) : term;
  }
  SmallVector<Value> yielded = {loss};
  for (unsigned index :
       llvm::concat<const unsigned>(signature.running, signature.grads))
    yielded.push_back(mapping.lookup(getReturned(function, index)));
  YieldOp::create(builder, function.getLoc(), yielded);
}

LogicalResult BuildStepPass::buildUpdate(StepOp step, func::FuncOp function,
                                         const Signature &signature) {
  Block &block = step.getUpdate().emplaceBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  Composer c(builder, function.getLoc());
  for (unsigned index : signature.denominators)
    block.addArgument(getReturned(function, index).getType(),
                      function.getLoc());
  Value samples;
  if (!signature.running.empty())
    samples = block.addArgument(RankedTensorType::get({}, builder.getF64Type()),
                                function.getLoc());
  SmallVector<Value> sums;
  for (Type type :
       step.getAccumulate().front().getTerminator()->getOperandTypes())
    sums.push_back(block.addArgument(type, function.getLoc()));
  OpBuilder declarations(step);
  SymbolTable symbols(getOperation());
  auto declare = [&](StringRef name, RankedTensorType type, Role role) {
    // A model that reads the step count has already declared it.
    auto known = symbols.lookup<VariableOp>(name);
    if (known && known.getRole() == role && known.getTensorType() == type)
      return known;
    auto variable =
        VariableOp::create(declarations, function.getLoc(), name, type, role);
    symbols.insert(variable);
    return variable;
  };
  DenseMap<Operation *, VariableOp> copies;
  for (auto variable : getOperation().getOps<VariableOp>())
    if (variable.getCopyOf())
      copies[symbols.lookup<VariableOp>(*variable.getCopyOf())] = variable;
  SmallVector<VariableOp> parameters, statistics;
  SmallVector<double> momenta;
  auto find = [&](FlatSymbolRefAttr name) -> FailureOr<VariableOp> {
    if (auto variable = symbols.lookup<VariableOp>(name.getValue()))
      return variable;
    return function.emitError("names '")
           << name.getValue() << "', which is not a variable";
  };
  for (unsigned index : signature.variables) {
    auto variable = find(function.getArgAttrOfType<FlatSymbolRefAttr>(
        index, kVariableAttribute));
    if (succeeded(variable) && variable->getCopyOf())
      variable = find(variable->getCopyOfAttr());
    if (failed(variable))
      return failure();
    parameters.push_back(*variable);
  }
  for (unsigned index : signature.running) {
    auto fields = dyn_cast<DictionaryAttr>(
        function.getResultAttr(index, kRunningAttribute));
    auto name = fields ? fields.getAs<FlatSymbolRefAttr>("variable")
                       : FlatSymbolRefAttr();
    auto momentum = fields ? fields.getAs<FloatAttr>("momentum") : FloatAttr();
    if (!name || !momentum)
      return function.emitError("has result ")
             << index
             << " marked kiln.running; wanted {momentum = 0.1 : f64, variable "
                "= @name}";
    auto variable = find(name);
    if (failed(variable))
      return failure();
    statistics.push_back(*variable);
    momenta.push_back(momentum.getValueAsDouble());
  }
  size_t running = signature.running.size();
  auto findCopy = [&](VariableOp parameter) {
    return copies.lookup(parameter);
  };
  Optimizer updater(getOptions(), getPolicyType(getOperation(), "moments"),
                    lossScale, c, declare, findCopy);
  SmallVector<Value> reports = updater.update(
      parameters, ArrayRef(sums).drop_front(1 + running), sums.front());
  for (size_t index = 0; index < running; ++index)
    updater.follow(statistics[index], sums[1 + index], samples, momenta[index]);
  YieldOp::create(builder, function.getLoc(), reports);
  step.setOutputsAttr(builder.getStrArrayAttr(updater.reported()));
  SmallVector<Attribute> names;
  for (VariableOp parameter : parameters)
    names.push_back(FlatSymbolRefAttr::get(parameter));
  step->setAttr(kGradientsAttribute, builder.getArrayAttr(names));
  return success();
}

LogicalResult BuildStepPass::build(func::FuncOp function) {
  FailureOr<Signature> signature = readSignature(function);
  if (failed(signature))
    return failure();
  if (!llvm::is_contained({"adam", "adamw", "sgd"}, optimizer))
    return function.emitError("wants optimizer '")
           << optimizer << "'; known are adam, adamw and sgd";
  OpBuilder builder(function);
  SmallVector<StringRef> inputs;
  for (unsigned index : signature->inputs)
    inputs.push_back(
        function.getArgAttrOfType<StringAttr>(index, kInputAttribute)
            .getValue());
  auto step = StepOp::create(builder, function.getLoc(), "train",
                             builder.getStrArrayAttr(inputs),
                             builder.getStrArrayAttr({}));
  lossScale = LossScale::declare(step);
  if (failed(buildPrologue(step, function, *signature)))
    return failure();
  buildAccumulate(step, function, *signature);
  if (failed(buildUpdate(step, function, *signature)))
    return failure();
  buildRefresh(getOperation(), builder, function.getLoc());
  function.erase();
  return success();
}

} // namespace kiln
