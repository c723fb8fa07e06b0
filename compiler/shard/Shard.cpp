// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cuts steps and evaluations over a mesh. Variables are cut first; then each
// region is written anew for one device. Gradients stay terms of a sum over the
// replicas for as long as the ZeRO stage allows.
#include "compiler/pipeline/Passes.h"
#include "compiler/shard/Partitioner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace kiln::shard;

namespace kiln {

#define GEN_PASS_DEF_SHARD
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct ShardPass : impl::ShardBase<ShardPass> {
  using ShardBase::ShardBase;

  void runOnOperation() override;

private:
  LogicalResult cutVariables();
  LogicalResult shardStep(StepOp step);
  LogicalResult shardEvaluation(func::FuncOp function);
  Sharding getVariableSharding(Attribute name);

  Mesh mesh;
};

/// Writes the regions of a step for one device, one after the other: each is
/// given what those before it yield.
class StepSharder {
public:
  /// `variables` are those whose gradients are the last sums of the step.
  StepSharder(StepOp step, ArrayRef<Sharding> variables, const Mesh &mesh,
              Partitioner::Options options, int64_t zero);

  LogicalResult run();

private:
  LogicalResult shardPrologue();
  LogicalResult shardAccumulate();
  LogicalResult shardUpdate();
  void defineArguments(Partitioner &partitioner, Region &from, Region &to);
  void finish(Region &region, ValueRange yielded);
  Value finishGradient(Partitioner &partitioner, Value grad,
                       const Sharding &variable, Sharding &yielded);
  /// Whether the stage cuts a gradient into runs, by the end of a step.
  bool isCutIntoRuns(RankedTensorType grad) const {
    return zero >= 1 && mesh.sizes[kData] > 1 && grad.getRank() > 0;
  }

  StepOp step, made;
  ArrayRef<Sharding> variables;
  const Mesh &mesh;
  Partitioner::Options options;
  int64_t zero;
  /// What regions so far yield, as a device has it.
  SmallVector<std::pair<Type, Sharding>> known;
};

} // namespace

static LogicalResult visitAll(Partitioner &partitioner, Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
    if (failed(partitioner.visit(&op)))
      return failure();
  return success();
}

static OperandRange getYielded(Region &region) {
  return region.front().getTerminator()->getOperands();
}

void ShardPass::runOnOperation() {
  ModuleOp module = getOperation();
  if (data < 1 || tensor < 1 || zero < 0 || zero > 3) {
    module.emitError("needs at least 1 device along each axis and a ZeRO stage "
                     "of 0 to 3, found data ")
        << int64_t(data) << ", tensor " << int64_t(tensor) << " and stage "
        << int64_t(zero);
    return signalPassFailure();
  }
  if (data * tensor == 1) {
    for (auto variable : module.getOps<VariableOp>())
      variable.removeShardingAttr();
    return;
  }
  mesh = {{kDataAxis.str(), kTensorAxis.str()}, {data, tensor}};
  module->setAttr(kMeshAttribute, mesh.toAttribute(&getContext()));
  if (failed(cutVariables()))
    return signalPassFailure();
  for (StepOp step : llvm::to_vector(module.getOps<StepOp>()))
    if (failed(shardStep(step)))
      return signalPassFailure();
  for (auto function : llvm::to_vector(module.getOps<func::FuncOp>()))
    if (function->hasAttr(kEvaluationAttribute) &&
        failed(shardEvaluation(function)))
      return signalPassFailure();
}

// Parameters and moments as they say over `tensor`, and what the stage says in
// runs over `data`.
LogicalResult ShardPass::cutVariables() {
  for (auto variable : getOperation().getOps<VariableOp>()) {
    RankedTensorType whole = variable.getTensorType();
    Sharding sharding = Sharding::whole(whole.getRank());
    if (ShardingAttr wanted = variable.getShardingAttr()) {
      // Over `data` a device has samples of its own, and would miss its parts
      // of the others'.
      std::optional<Sharding> read = Sharding::get(wanted, mesh);
      if (!read || llvm::any_of(read->dims, [](const Cut &cut) {
            return llvm::is_contained(cut.axes, kData);
          }))
        return variable.emitOpError("has the sharding ")
               << wanted << "; wanted cuts over the axis tensor, or none";
      for (auto [cut, given] : llvm::zip_equal(sharding.dims, read->dims))
        if (mesh.countParts(given.axes) > 1)
          cut = given;
    }
    bool isFlat = (variable.getRole() == Role::moment && zero >= 1) ||
                  (variable.getRole() == Role::parameter && zero >= 3);
    if (isFlat && data > 1 && whole.getRank() > 0)
      sharding.flat = {kData};
    if (sharding.isWhole()) {
      variable.removeShardingAttr();
      continue;
    }
    variable.setShardingAttr(sharding.toAttribute(mesh, &getContext()));
    variable.setWholeAttr(TypeAttr::get(whole));
    variable.setTypeAttr(TypeAttr::get(sharding.localType(whole, mesh)));
    if (failed(variable.verify()))
      return failure();
  }
  return success();
}

Sharding ShardPass::getVariableSharding(Attribute name) {
  return Sharding::of(
      cast<VariableOp>(SymbolTable::lookupSymbolIn(
          getOperation(), cast<FlatSymbolRefAttr>(name).getAttr())),
      mesh);
}

LogicalResult ShardPass::shardStep(StepOp step) {
  auto names = step->getAttrOfType<ArrayAttr>(kGradientsAttribute);
  if (!names)
    return step.emitOpError("does not say whose gradients it sums: run "
                            "-kiln-build-step first");
  SmallVector<Sharding> variables;
  for (Attribute name : names)
    variables.push_back(getVariableSharding(name));
  return StepSharder(step, variables, mesh, {sequenceParallel}, zero).run();
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

StepSharder::StepSharder(StepOp step, ArrayRef<Sharding> variables,
                         const Mesh &mesh, Partitioner::Options options,
                         int64_t zero)
    : step(step), variables(variables), mesh(mesh), options(options),
      zero(zero) {
  OpBuilder builder(step);
  made = StepOp::create(builder, step.getLoc(), step.getSymName(),
                        step.getInputsAttr(), step.getOutputsAttr());
}

LogicalResult StepSharder::run() {
  if (failed(shardPrologue()) || failed(shardAccumulate()) ||
      failed(shardUpdate()))
    return failure();
  step.erase();
  return success();
}

// Inputs have the batch; the others are what is known.
void StepSharder::defineArguments(Partitioner &partitioner, Region &from,
                                  Region &to) {
  unsigned inputs = from.getNumArguments() - known.size();
  for (BlockArgument argument : from.getArguments()) {
    unsigned index = argument.getArgNumber();
    Type type = argument.getType();
    Sharding sharding = Sharding::whole(tensorType(argument).getRank());
    if (index >= inputs)
      std::tie(type, sharding) = known[index - inputs];
    partitioner.define(argument, to.addArgument(type, step.getLoc()), sharding);
  }
}

void StepSharder::finish(Region &region, ValueRange yielded) {
  OpBuilder builder = OpBuilder::atBlockEnd(&region.front());
  YieldOp::create(builder, step.getLoc(), yielded);
}

LogicalResult StepSharder::shardPrologue() {
  Region &from = step.getPrologue(), &to = made.getPrologue();
  Partitioner partitioner(OpBuilder::atBlockEnd(&to.emplaceBlock()), mesh,
                          options);
  defineArguments(partitioner, from, to);
  if (failed(visitAll(partitioner, from.front())))
    return failure();
  SmallVector<Value> counts;
  for (Value value : getYielded(from)) {
    counts.push_back(partitioner.getWhole(value));
    known.push_back({value.getType(), Sharding::whole(0)});
  }
  finish(to, counts);
  return success();
}

// Cut as its variable, apart from runs; padding is zero, so that neither norms
// nor updates see it. From stage 2 on it is summed over the replicas at once.
Value StepSharder::finishGradient(Partitioner &partitioner, Value grad,
                                  const Sharding &variable, Sharding &yielded) {
  Resharder &resharder = partitioner.getResharder();
  RankedTensorType whole = tensorType(grad);
  Sharding run = {variable.dims, {kData}, {}};
  yielded = partitioner.getSharding(grad);
  if (zero >= 2 && yielded == run && partitioner.hasZeroPadding(grad))
    return partitioner.get(grad, run);
  yielded.dims = variable.dims;
  yielded.flat.clear();
  // A term cannot be cut by the axis whose terms it is one of.
  llvm::erase_if(yielded.partial, [&](unsigned axis) {
    return llvm::any_of(variable.dims, [&](const Cut &cut) {
      return llvm::is_contained(cut.axes, axis);
    });
  });
  Value local = partitioner.get(grad, yielded);
  for (auto [dimension, cut] : llvm::enumerate(yielded.dims))
    if (int64_t size = whole.getDimSize(dimension); cut.isPadded(size, mesh))
      local = resharder.maskPadding(local, dimension, size, cut, 0);
  if (zero < 2 || !isCutIntoRuns(whole))
    return local;
  local = resharder.reshard(local, whole, yielded, run);
  yielded = run;
  return local;
}

LogicalResult StepSharder::shardAccumulate() {
  Region &from = step.getAccumulate(), &to = made.getAccumulate();
  Partitioner partitioner(OpBuilder::atBlockEnd(&to.emplaceBlock()), mesh,
                          options);
  defineArguments(partitioner, from, to);
  unsigned firstGradient = getYielded(from).size() - variables.size();
  for (auto [grad, variable] :
       llvm::zip_equal(getYielded(from).drop_front(firstGradient), variables))
    partitioner.wish(grad, variable);
  partitioner.spreadWishes(from.front());
  if (failed(visitAll(partitioner, from.front())))
    return failure();
  SmallVector<Value> terms;
  // Asked for anew: ops that were taken apart have other results by now.
  for (auto [index, value] : llvm::enumerate(getYielded(from))) {
    Sharding sharding;
    if (index >= firstGradient) {
      terms.push_back(finishGradient(
          partitioner, value, variables[index - firstGradient], sharding));
    } else {
      sharding = Sharding::whole(tensorType(value).getRank());
      sharding.partial = partitioner.getSharding(value).partial;
      terms.push_back(partitioner.get(value, sharding));
    }
    known.push_back({terms.back().getType(), sharding});
  }
  finish(to, terms);
  return success();
}

LogicalResult StepSharder::shardUpdate() {
  Region &from = step.getUpdate(), &to = made.getUpdate();
  Partitioner partitioner(OpBuilder::atBlockEnd(&to.emplaceBlock()), mesh,
                          options);
  defineArguments(partitioner, from, to);
  unsigned firstGradient = from.getNumArguments() - variables.size();
  for (BlockArgument argument : from.getArguments()) {
    Sharding summed = partitioner.getSharding(argument);
    summed.partial.clear();
    bool isGradient = argument.getArgNumber() >= firstGradient;
    if (isGradient && isCutIntoRuns(tensorType(argument)))
      summed.flat = {kData};
    Value local = partitioner.get(argument, summed);
    partitioner.define(argument, local, summed);
    if (isGradient) // See finishGradient.
      partitioner.markZeroPadding(argument);
  }
  // Each replica updates its run of a parameter, which is gathered then.
  for (auto read : from.getOps<ReadOp>()) {
    auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
        step, read.getVariableAttr().getAttr());
    if (variable.getRole() != Role::parameter ||
        !isCutIntoRuns(variable.getWholeType()))
      continue;
    Sharding run = Sharding::of(variable, mesh);
    run.flat = {kData};
    partitioner.wish(read.getResult(), run);
  }
  if (failed(visitAll(partitioner, from.front())))
    return failure();
  SmallVector<Value> reports;
  for (Value value : getYielded(from))
    reports.push_back(partitioner.getWhole(value));
  finish(to, reports);
  return success();
}

//===----------------------------------------------------------------------===//
// Evaluations
//===----------------------------------------------------------------------===//

LogicalResult ShardPass::shardEvaluation(func::FuncOp function) {
  OpBuilder builder(function);
  Location loc = function.getLoc();
  SmallVector<Type> types;
  SmallVector<Sharding> shardings;
  for (BlockArgument argument : function.getArguments()) {
    Sharding sharding = Sharding::whole(tensorType(argument).getRank());
    if (auto name =
            function.getArgAttr(argument.getArgNumber(), kVariableAttribute))
      sharding = getVariableSharding(name);
    types.push_back(sharding.localType(tensorType(argument), mesh));
    shardings.push_back(sharding);
  }
  auto made = func::FuncOp::create(
      builder, loc, function.getSymName(),
      builder.getFunctionType(types, function.getResultTypes()));
  made->setAttrs(function->getAttrs());
  made.setType(builder.getFunctionType(types, function.getResultTypes()));
  Block &block = *made.addEntryBlock();
  Partitioner partitioner(OpBuilder::atBlockEnd(&block), mesh,
                          {sequenceParallel});
  for (auto [whole, local, sharding] : llvm::zip_equal(
           function.getArguments(), block.getArguments(), shardings))
    partitioner.define(whole, local, sharding);
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kVariableAttribute))
      partitioner.markZeroPadding(argument);
  if (failed(visitAll(partitioner, function.front())))
    return failure();
  SmallVector<Value> results;
  for (Value value : getYielded(function.getBody()))
    results.push_back(partitioner.getWhole(value));
  OpBuilder atEnd = OpBuilder::atBlockEnd(&block);
  func::ReturnOp::create(atEnd, loc, results);
  function.erase();
  return success();
}

} // namespace kiln
