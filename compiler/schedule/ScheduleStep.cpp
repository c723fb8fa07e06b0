// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gives the symbolic batch its size and turns steps and functions into programs
// of phases. A step whose micro-batch is the full batch becomes one phase, in
// which gradients are ordinary values that live as briefly as they can.
// Otherwise sums and denominators are variables that the phases exchange.
#include "compiler/pipeline/Passes.h"
#include "compiler/shard/Collectives.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

#include <limits>

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_SCHEDULESTEP
#include "compiler/pipeline/Passes.h.inc"

static Type specialise(Type type, int64_t samples) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.hasStaticShape())
    return type;
  SmallVector<int64_t> shape(tensor.getShape());
  for (int64_t &size : shape)
    if (ShapedType::isDynamic(size))
      size = samples; // The batch is the only dynamic size.
  return RankedTensorType::get(shape, tensor.getElementType());
}

// Copies the ops of `from` to the builder's place with a batch of `samples`;
// returns what it yields or returns.
static SmallVector<Value> inlineBlock(Block &from, OpBuilder &builder,
                                      IRMapping &mapping, int64_t samples) {
  for (Operation &op : from.without_terminator()) {
    Operation *copy = builder.clone(op, mapping);
    for (Value result : copy->getResults())
      result.setType(specialise(result.getType(), samples));
  }
  SmallVector<Value> yielded;
  for (Value value : from.getTerminator()->getOperands())
    yielded.push_back(mapping.lookup(value));
  return yielded;
}

static bool isOverReplicas(Operation *op) {
  if (!isExchange(op))
    return false;
  return llvm::any_of(op->getAttrOfType<ArrayAttr>("axes"), [](Attribute axis) {
    return cast<StringAttr>(axis).getValue() == shard::kDataAxis;
  });
}

// Removes what nothing reads, which tells others nothing either.
static void eraseUnused(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (op.use_empty() && op.getNumResults() > 0 && !isOverReplicas(&op))
      op.erase();
}

// Writes, at the builder's place, the micro-batch of a replica that has no
// samples left: the collectives over replicas, to which it contributes zeros
// for its samples, and all ops that depend only on those and on variables.
// Returns its term of each sum, or null.
static SmallVector<Value> inlineIdle(Block &from, OpBuilder &builder,
                                     IRMapping &mapping) {
  for (Operation &op : from.without_terminator()) {
    SmallVector<Value> operands;
    for (Value operand : op.getOperands())
      operands.push_back(mapping.lookupOrNull(operand));
    if (isOverReplicas(&op))
      for (auto [local, operand] : llvm::zip_equal(operands, op.getOperands()))
        if (!local)
          local = Composer(builder, op.getLoc())
                      .fill(cast<Collective>(op).getIdentity(), operand);
    bool isOfSamples = llvm::is_contained(operands, Value()) ||
                       llvm::any_of(op.getResultTypes(), [](Type type) {
                         return !cast<RankedTensorType>(type).hasStaticShape();
                       });
    if (isOfSamples)
      continue;
    Operation *copy = builder.clone(op);
    copy->setOperands(operands);
    mapping.map(op.getResults(), copy->getResults());
  }
  SmallVector<Value> yielded;
  for (Value value : from.getTerminator()->getOperands())
    yielded.push_back(mapping.lookupOrNull(value));
  return yielded;
}

namespace {

/// Values that the phases of a step hand on.
struct Carried {
  SmallVector<VariableOp> counts, sums;
};

struct ScheduleStepPass : impl::ScheduleStepBase<ScheduleStepPass> {
  using ScheduleStepBase::ScheduleStepBase;

  void runOnOperation() override {
    if (auto share =
            getOperation()->getAttrOfType<IntegerAttr>(kShareAttribute))
      batch = share.getInt();
    if (batch < 1) {
      getOperation().emitError("needs a batch of at least 1, found ")
          << int64_t(batch);
      return signalPassFailure();
    }
    if (microBatch < 0) {
      getOperation().emitError("needs a micro-batch of at least 0, found ")
          << int64_t(microBatch);
      return signalPassFailure();
    }
    SymbolTable table(getOperation());
    symbols = &table;
    SmallVector<StepOp> steps(getOperation().getOps<StepOp>());
    for (StepOp step : steps)
      schedule(step);
    SmallVector<func::FuncOp> functions(getOperation().getOps<func::FuncOp>());
    for (func::FuncOp function : functions)
      if (failed(function->hasAttr(kEvaluationAttribute)
                     ? scheduleEvaluation(function)
                     : schedule(function)))
        return signalPassFailure();
  }

  int64_t getMicroBatch() const {
    return microBatch == 0 ? int64_t(batch)
                           : std::min<int64_t>(microBatch, batch);
  }

  int64_t countMicroBatches() const {
    return std::max<int64_t>(microBatches,
                             llvm::divideCeil(batch, getMicroBatch()));
  }

  void schedule(StepOp step);
  LogicalResult schedule(func::FuncOp function);
  LogicalResult scheduleEvaluation(func::FuncOp function);
  void scheduleWhole(StepOp step, ProgramOp program);
  void scheduleAccumulation(StepOp step, ProgramOp program, int64_t micro);
  VariableOp declare(StepOp step, const Twine &name, Type type, Role role);
  void addPrologue(StepOp step, ProgramOp program, Carried &carried);
  void addMicroBatches(StepOp step, ProgramOp program, const Carried &carried,
                       StringRef name, int64_t repeat, int64_t first,
                       int64_t samples);
  void addIdle(StepOp step, ProgramOp program, const Carried &carried,
               int64_t repeat);

  SymbolTable *symbols = nullptr; // Of the module that is scheduled.
};

} // namespace

// Starts a phase whose arguments are slices of the step's inputs, mapped from
// the arguments of `region`.
static Block &addPhase(ProgramOp program, StepOp step, StringRef name,
                       int64_t repeat, int64_t first, int64_t samples,
                       Region &region, IRMapping &mapping) {
  OpBuilder builder = OpBuilder::atBlockEnd(&program.getBody().front());
  bool hasInputs = &region != &step.getUpdate();
  auto inputs = hasInputs ? step.getInputs() : builder.getStrArrayAttr({});
  auto phase = PhaseOp::create(builder, step.getLoc(), name, repeat, first,
                               samples, inputs);
  Block &block = phase.getBody().emplaceBlock();
  for (size_t index = 0; index < inputs.size(); ++index) {
    BlockArgument argument = region.getArgument(index);
    mapping.map(argument,
                block.addArgument(specialise(argument.getType(), samples),
                                  step.getLoc()));
  }
  return block;
}

static void endPhase(StepOp step, OpBuilder &builder, ValueRange outputs) {
  for (auto [name, value] : llvm::zip(step.getOutputs(), outputs))
    OutputOp::create(builder, step.getLoc(), cast<StringAttr>(name), value);
  YieldOp::create(builder, step.getLoc(), ValueRange());
}

void ScheduleStepPass::scheduleWhole(StepOp step, ProgramOp program) {
  IRMapping mapping;
  Block &block =
      addPhase(program, step, "step", 1, 0, batch, step.getPrologue(), mapping);
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  SmallVector<Value> counts =
      inlineBlock(step.getPrologue().front(), builder, mapping, batch);
  SmallVector<Value> given(block.getArguments());
  given.append(counts);
  mapping.map(step.getAccumulate().getArguments(), given);
  SmallVector<Value> sums =
      inlineBlock(step.getAccumulate().front(), builder, mapping, batch);
  SmallVector<Value> known = counts;
  known.append(sums);
  mapping.map(step.getUpdate().getArguments(), known);
  endPhase(step, builder,
           inlineBlock(step.getUpdate().front(), builder, mapping, batch));
  startSums(block);
}

static SmallVector<Value> readAll(OpBuilder &builder, Location loc,
                                  ArrayRef<VariableOp> variables) {
  SmallVector<Value> values;
  for (VariableOp variable : variables)
    values.push_back(ReadOp::create(builder, loc, variable.getTensorType(),
                                    variable.getSymName()));
  return values;
}

// A null term adds nothing. Sums of 16 bits are rounded once for each term.
static void addToSums(OpBuilder &builder, Location loc,
                      ArrayRef<VariableOp> sums, ArrayRef<Value> terms) {
  Composer c(builder, loc);
  for (auto [sum, term] : llvm::zip_equal(sums, terms))
    if (VariableOp variable = sum; term) {
      Value old = ReadOp::create(builder, loc, variable.getTensorType(),
                                 variable.getSymName());
      Value added = c.add(c.widen(old), c.widen(term));
      AssignOp::create(builder, loc, variable.getSymName(),
                       c.convertLike(added, old));
    }
}

VariableOp ScheduleStepPass::declare(StepOp step, const Twine &name, Type type,
                                     Role role) {
  OpBuilder builder(step);
  auto variable = VariableOp::create(builder, step.getLoc(), name.str(),
                                     cast<RankedTensorType>(type), role);
  symbols->insert(variable);
  return variable;
}

void ScheduleStepPass::addPrologue(StepOp step, ProgramOp program,
                                   Carried &carried) {
  IRMapping mapping;
  Block &block = addPhase(program, step, "prologue", 1, 0, batch,
                          step.getPrologue(), mapping);
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  Location loc = step.getLoc();
  for (auto [index, value] : llvm::enumerate(
           inlineBlock(step.getPrologue().front(), builder, mapping, batch))) {
    carried.counts.push_back(
        declare(step, "count." + Twine(index), value.getType(), Role::scratch));
    AssignOp::create(builder, loc, carried.counts.back().getSymName(), value);
  }
  Composer c(builder, loc);
  for (auto [index, type] : llvm::enumerate(
           step.getAccumulate().front().getTerminator()->getOperandTypes())) {
    carried.sums.push_back(
        declare(step, "sum." + Twine(index), type, Role::gradient));
    AssignOp::create(builder, loc, carried.sums.back().getSymName(),
                     c.zeros(cast<RankedTensorType>(type)));
  }
  YieldOp::create(builder, loc, ValueRange());
}

void ScheduleStepPass::addMicroBatches(StepOp step, ProgramOp program,
                                       const Carried &carried, StringRef name,
                                       int64_t repeat, int64_t first,
                                       int64_t samples) {
  Region &region = step.getAccumulate();
  Location loc = step.getLoc();
  IRMapping mapping;
  Block &block =
      addPhase(program, step, name, repeat, first, samples, region, mapping);
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  mapping.map(region.getArguments().drop_front(step.getInputs().size()),
              readAll(builder, loc, carried.counts));
  addToSums(builder, loc, carried.sums,
            inlineBlock(region.front(), builder, mapping, samples));
  YieldOp::create(builder, loc, ValueRange());
}

// Nothing if a micro-batch needs no other replica.
void ScheduleStepPass::addIdle(StepOp step, ProgramOp program,
                               const Carried &carried, int64_t repeat) {
  if (repeat == 0)
    return;
  Region &region = step.getAccumulate();
  OpBuilder phases = OpBuilder::atBlockEnd(&program.getBody().front());
  Location loc = step.getLoc();
  auto phase = PhaseOp::create(phases, loc, "idle", repeat, 0, batch,
                               phases.getStrArrayAttr({}));
  Block &block = phase.getBody().emplaceBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  IRMapping mapping;
  mapping.map(region.getArguments().drop_front(step.getInputs().size()),
              readAll(builder, loc, carried.counts));
  addToSums(builder, loc, carried.sums,
            inlineIdle(region.front(), builder, mapping));
  eraseUnused(block);
  if (block.empty())
    return phase.erase();
  YieldOp::create(builder, loc, ValueRange());
}

void ScheduleStepPass::scheduleAccumulation(StepOp step, ProgramOp program,
                                            int64_t micro) {
  Carried carried;
  addPrologue(step, program, carried);
  int64_t whole = batch / micro, rest = batch % micro;
  addMicroBatches(step, program, carried, "accumulate", whole, 0, micro);
  if (rest)
    addMicroBatches(step, program, carried, "accumulate_rest", 1, whole * micro,
                    rest);
  addIdle(step, program, carried, countMicroBatches() - whole - (rest != 0));
  IRMapping mapping;
  Block &update =
      addPhase(program, step, "update", 1, 0, batch, step.getUpdate(), mapping);
  OpBuilder builder = OpBuilder::atBlockEnd(&update);
  SmallVector<Value> known = readAll(builder, step.getLoc(), carried.counts);
  known.append(readAll(builder, step.getLoc(), carried.sums));
  mapping.map(step.getUpdate().getArguments(), known);
  endPhase(step, builder,
           inlineBlock(step.getUpdate().front(), builder, mapping, batch));
}

void ScheduleStepPass::schedule(StepOp step) {
  OpBuilder builder(step);
  auto program =
      ProgramOp::create(builder, step.getLoc(), step.getSymName(), batch);
  program.getBody().emplaceBlock();
  int64_t micro = getMicroBatch();
  if (countMicroBatches() == 1 || step.getInputs().empty())
    scheduleWhole(step, program);
  else
    scheduleAccumulation(step, program, micro);
  step.erase();
}

// A function is a program of one phase that reads its arguments whole.
LogicalResult ScheduleStepPass::schedule(func::FuncOp function) {
  OpBuilder builder(function);
  Location loc = function.getLoc();
  auto program = ProgramOp::create(builder, loc, function.getSymName(), batch);
  builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
  SmallVector<std::string> names;
  for (unsigned index = 0; index < function.getNumArguments(); ++index) {
    auto name = function.getArgAttrOfType<StringAttr>(index, kInputAttribute);
    names.push_back(name ? name.str() : "argument" + std::to_string(index));
  }
  SmallVector<StringRef> references(names.begin(), names.end());
  auto phase = PhaseOp::create(builder, loc, "call", 1, 0, batch,
                               builder.getStrArrayAttr(references));
  Block &block = phase.getBody().emplaceBlock();
  IRMapping mapping;
  for (BlockArgument argument : function.getArguments())
    mapping.map(argument,
                block.addArgument(specialise(argument.getType(), batch), loc));
  builder.setInsertionPointToEnd(&block);
  SmallVector<Value> results =
      inlineBlock(function.front(), builder, mapping, batch);
  for (auto [index, value] : llvm::enumerate(results))
    OutputOp::create(builder, loc, "result" + std::to_string(index), value);
  YieldOp::create(builder, loc, ValueRange());
  function.erase();
  return success();
}

// Measures one micro-batch of samples; reads variables and assigns none.
LogicalResult ScheduleStepPass::scheduleEvaluation(func::FuncOp function) {
  auto names = dyn_cast<ArrayAttr>(function->getAttr(kEvaluationAttribute));
  if (!names || names.size() != function.getNumResults())
    return function.emitError("needs one name per result in kiln.evaluation, "
                              "found ")
           << function->getAttr(kEvaluationAttribute) << " for "
           << function.getNumResults() << " results";
  OpBuilder builder(function);
  Location loc = function.getLoc();
  int64_t samples = getMicroBatch();
  auto program =
      ProgramOp::create(builder, loc, function.getSymName(), samples);
  builder.setInsertionPointToEnd(&program.getBody().emplaceBlock());
  SmallVector<Attribute> inputs;
  for (unsigned index = 0; index < function.getNumArguments(); ++index)
    if (auto name = function.getArgAttr(index, kInputAttribute))
      inputs.push_back(name);
  auto phase = PhaseOp::create(builder, loc, "evaluate", 1, 0, samples,
                               builder.getArrayAttr(inputs));
  Block &block = phase.getBody().emplaceBlock();
  builder.setInsertionPointToEnd(&block);
  IRMapping mapping;
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto variable =
        function.getArgAttrOfType<FlatSymbolRefAttr>(index, kVariableAttribute);
    if (variable)
      mapping.map(argument,
                  ReadOp::create(builder, loc, argument.getType(), variable));
    else if (function.getArgAttr(index, kInputAttribute))
      mapping.map(argument, block.addArgument(
                                specialise(argument.getType(), samples), loc));
    else
      return function.emitError("has argument ")
             << index
             << ", which is neither a variable nor an input: mark it "
                "kiln.variable or kiln.input";
  }
  for (auto [name, value] : llvm::zip_equal(
           names, inlineBlock(function.front(), builder, mapping, samples)))
    OutputOp::create(builder, loc, cast<StringAttr>(name), value);
  YieldOp::create(builder, loc, ValueRange());
  function.erase();
  return success();
}

} // namespace kiln
