// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cuts steps and evaluations over a mesh. Variables are cut first; then each
// region is written anew for one device. Gradients stay partial sums over the
// replicas for as long as the ZeRO stage allows.
#include "compiler/pipeline/Passes.h"
#include "compiler/shard/Partitioner.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/SaveAndRestore.h"

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
  VariableOp getVariable(Attribute name);
  int64_t getFlatStage(VariableOp variable);
  Partitioner::Options getOptions() {
    return {sequenceParallel, explain,
            getPolicyType(getOperation(), "messages")};
  }

  Mesh mesh;
  DenseSet<StringAttr> masters; // Names of parameters with working copies.
};

/// Writes the regions of a step for one device, one after the other: the
/// arguments of each are yielded by those before it.
class StepSharder {
public:
  /// `variables` are those whose gradients are the last sums of the step.
  StepSharder(StepOp step, ArrayRef<VariableOp> variables, const Mesh &mesh,
              Partitioner::Options options, int64_t zero);

  LogicalResult run();

private:
  LogicalResult shardPrologue();
  LogicalResult shardAccumulate();
  LogicalResult shardUpdate();
  void defineArguments(Partitioner &partitioner, Region &from, Region &to);
  void finish(Region &region, ValueRange yielded);
  Value finishGradient(Partitioner &partitioner, Value grad,
                       VariableOp variable, Sharding &yielded);
  Value sumGradient(Resharder &resharder, Value local, RankedTensorType full,
                    const Sharding &from, const Sharding &to);
  /// Whether the stage cuts a flattened gradient over the replicas, by the end
  /// of a step.
  bool isFlat(RankedTensorType grad) const {
    return zero >= 1 && mesh.sizes[kData] > 1 && grad.getRank() > 0;
  }

  StepOp step, made;
  ArrayRef<VariableOp> variables;
  const Mesh &mesh;
  Partitioner::Options options;
  int64_t zero;
  struct Yielded {
    Type local;
    Sharding sharding;
    Location loc;
  };
  /// Values that the regions so far yield.
  SmallVector<Yielded> known;
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

// The ZeRO stage from which on a variable is cut over the replicas.
int64_t ShardPass::getFlatStage(VariableOp variable) {
  constexpr int64_t kNever = 4;
  switch (variable.getRole()) {
  case Role::moment:
    return 1;
  case Role::parameter: // Only the update reads one that has a copy.
    return masters.contains(variable.getSymNameAttr()) ? 1 : 3;
  case Role::working:
    return 3;
  default:
    return kNever;
  }
}

// Cuts variables over `tensor` as they declare; over `data`, the flattened
// shards of those that the ZeRO stage cuts.
LogicalResult ShardPass::cutVariables() {
  for (auto variable : getOperation().getOps<VariableOp>())
    if (variable.getCopyOf())
      masters.insert(variable.getCopyOfAttr().getAttr());
  for (auto variable : getOperation().getOps<VariableOp>()) {
    RankedTensorType full = variable.getTensorType();
    Sharding sharding = Sharding::whole(full.getRank());
    if (ShardingAttr wanted = variable.getShardingAttr()) {
      // Replicas have different samples: a gradient that is cut over `data`
      // would miss those of the other replicas.
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
    bool isFlat = zero >= getFlatStage(variable);
    if (isFlat && data > 1 && full.getRank() > 0)
      sharding.flat = {kData};
    if (sharding.isWhole()) {
      variable.removeShardingAttr();
      continue;
    }
    variable.setShardingAttr(sharding.toAttribute(mesh, &getContext()));
    variable.setWholeAttr(TypeAttr::get(full));
    variable.setTypeAttr(TypeAttr::get(sharding.localType(full, mesh)));
    if (failed(variable.verify()))
      return failure();
  }
  return success();
}

VariableOp ShardPass::getVariable(Attribute name) {
  return cast<VariableOp>(SymbolTable::lookupSymbolIn(
      getOperation(), cast<FlatSymbolRefAttr>(name).getAttr()));
}

LogicalResult ShardPass::shardStep(StepOp step) {
  auto names = step->getAttrOfType<ArrayAttr>(kGradientsAttribute);
  if (!names)
    return step.emitOpError("does not say whose gradients it sums: run "
                            "-kiln-build-step first");
  SmallVector<VariableOp> variables;
  for (Attribute name : names)
    variables.push_back(getVariable(name));
  return StepSharder(step, variables, mesh, getOptions(), zero).run();
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

StepSharder::StepSharder(StepOp step, ArrayRef<VariableOp> variables,
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

// Inputs come first and have the batch; values that regions so far yield
// follow.
void StepSharder::defineArguments(Partitioner &partitioner, Region &from,
                                  Region &to) {
  unsigned inputs = from.getNumArguments() - known.size();
  for (BlockArgument argument : from.getArguments()) {
    unsigned index = argument.getArgNumber();
    Yielded given{argument.getType(),
                  Sharding::whole(tensorType(argument).getRank()),
                  step.getLoc()};
    if (index >= inputs)
      given = known[index - inputs];
    partitioner.define(argument, to.addArgument(given.local, given.loc),
                       given.sharding);
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
    counts.push_back(partitioner.getFull(value));
    known.push_back({value.getType(), Sharding::whole(0), step.getLoc()});
  }
  finish(to, counts);
  return success();
}

// A gradient is cut as its variable, apart from the flat cut; its padding is
// zero, so that neither norms nor updates see it. From stage 2 on it is summed
// over the replicas at once.
Value StepSharder::finishGradient(Partitioner &partitioner, Value grad,
                                  VariableOp variable, Sharding &yielded) {
  Resharder &resharder = partitioner.getResharder();
  llvm::SaveAndRestore origin(resharder.origin,
                              std::optional<Location>(variable.getLoc()));
  RankedTensorType full = tensorType(grad);
  Sharding flat = {Sharding::of(variable, mesh).dims, {kData}, {}};
  yielded = partitioner.getSharding(grad);
  if (zero >= 2 && yielded == flat && partitioner.hasZeroPadding(grad))
    return partitioner.get(grad, flat);
  yielded.dims = flat.dims;
  yielded.flat.clear();
  // A partial sum cannot be cut by an axis over which it is partial.
  llvm::erase_if(yielded.partial, [&](unsigned axis) {
    return llvm::any_of(yielded.dims, [&](const Cut &cut) {
      return llvm::is_contained(cut.axes, axis);
    });
  });
  Value local = partitioner.get(grad, yielded);
  for (auto [dimension, cut] : llvm::enumerate(yielded.dims))
    if (int64_t size = full.getDimSize(dimension); cut.isPadded(size, mesh))
      local = resharder.maskPadding(local, dimension, size, cut, 0);
  if (zero < 2 || !isFlat(full))
    return local;
  local = sumGradient(resharder, local, full, yielded, flat);
  yielded = flat;
  return local;
}

// Gradients of a wider type are moved as messages are.
Value StepSharder::sumGradient(Resharder &resharder, Value local,
                               RankedTensorType full, const Sharding &from,
                               const Sharding &to) {
  Type element = full.getElementType();
  if (from.partial == to.partial || !options.messages ||
      !isNarrow(options.messages) || isNarrow(element))
    return resharder.reshard(local, full, from, to);
  Composer c(resharder.getBuilder(), local.getLoc());
  Value sum = resharder.reshard(c.convert(local, options.messages),
                                full.clone(options.messages), from, to);
  return c.convert(sum, element);
}

LogicalResult StepSharder::shardAccumulate() {
  Region &from = step.getAccumulate(), &to = made.getAccumulate();
  Partitioner partitioner(OpBuilder::atBlockEnd(&to.emplaceBlock()), mesh,
                          options);
  defineArguments(partitioner, from, to);
  unsigned firstGradient = getYielded(from).size() - variables.size();
  for (auto [grad, variable] :
       llvm::zip_equal(getYielded(from).drop_front(firstGradient), variables))
    partitioner.prefer(grad, Sharding::of(variable, mesh));
  partitioner.spreadPreferences(from.front());
  if (failed(visitAll(partitioner, from.front())))
    return failure();
  SmallVector<Value> terms;
  // Read again from the terminator: decomposed ops have other results by now.
  for (auto [index, value] : llvm::enumerate(getYielded(from))) {
    Sharding sharding;
    Location loc = step.getLoc();
    if (index >= firstGradient) {
      VariableOp variable = variables[index - firstGradient];
      loc = variable.getLoc();
      terms.push_back(finishGradient(partitioner, value, variable, sharding));
    } else {
      sharding = Sharding::whole(tensorType(value).getRank());
      sharding.partial = partitioner.getSharding(value).partial;
      terms.push_back(partitioner.get(value, sharding));
    }
    known.push_back({terms.back().getType(), sharding, loc});
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
    if (isGradient && isFlat(tensorType(argument)))
      summed.flat = {kData};
    Sharding given = partitioner.getSharding(argument);
    Value local = partitioner.get(argument, given);
    local = isGradient ? sumGradient(partitioner.getResharder(), local,
                                     tensorType(argument), given, summed)
                       : partitioner.get(argument, summed);
    partitioner.define(argument, local, summed);
    if (isGradient) // See finishGradient.
      partitioner.markZeroPadding(argument);
  }
  // Each replica updates its flat shard of a parameter, which is then gathered.
  for (auto read : from.getOps<ReadOp>()) {
    auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
        step, read.getVariableAttr().getAttr());
    if (variable.getRole() != Role::parameter ||
        !isFlat(variable.getWholeType()))
      continue;
    Sharding flat = Sharding::of(variable, mesh);
    flat.flat = {kData};
    partitioner.prefer(read.getResult(), flat);
  }
  if (failed(visitAll(partitioner, from.front())))
    return failure();
  SmallVector<Value> reports;
  for (Value value : getYielded(from))
    reports.push_back(partitioner.getFull(value));
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
  SmallVector<Location> locs;
  for (BlockArgument argument : function.getArguments()) {
    Sharding sharding = Sharding::whole(tensorType(argument).getRank());
    locs.push_back(argument.getLoc());
    if (auto name =
            function.getArgAttr(argument.getArgNumber(), kVariableAttribute)) {
      VariableOp variable = getVariable(name);
      sharding = Sharding::of(variable, mesh);
      locs.back() = variable.getLoc();
    }
    types.push_back(sharding.localType(tensorType(argument), mesh));
    shardings.push_back(sharding);
  }
  auto made = func::FuncOp::create(
      builder, loc, function.getSymName(),
      builder.getFunctionType(types, function.getResultTypes()));
  made->setAttrs(function->getAttrs());
  made.setType(builder.getFunctionType(types, function.getResultTypes()));
  Block &block = made.getBody().emplaceBlock();
  block.addArguments(types, locs);
  Partitioner partitioner(OpBuilder::atBlockEnd(&block), mesh, getOptions());
  for (auto [full, local, sharding] : llvm::zip_equal(
           function.getArguments(), block.getArguments(), shardings))
    partitioner.define(full, local, sharding);
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kVariableAttribute))
      partitioner.markZeroPadding(argument);
  if (failed(visitAll(partitioner, function.front())))
    return failure();
  SmallVector<Value> results;
  for (Value value : getYielded(function.getBody()))
    results.push_back(partitioner.getFull(value));
  OpBuilder atEnd = OpBuilder::atBlockEnd(&block);
  func::ReturnOp::create(atEnd, loc, results);
  function.erase();
  return success();
}

} // namespace kiln
