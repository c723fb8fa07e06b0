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

constexpr unsigned kData = 0;

struct ShardPass : impl::ShardBase<ShardPass> {
  using ShardBase::ShardBase;

  void runOnOperation() override;

private:
  LogicalResult cutVariables();
  LogicalResult shardStep(StepOp step);
  LogicalResult shardEvaluation(func::FuncOp function);
  LogicalResult visitAll(Partitioner &partitioner, Block &block);
  Sharding getVariableSharding(Attribute name);
  Value finishGradient(Partitioner &partitioner, Value grad, Sharding variable,
                       Sharding &yielded);
  Partitioner makePartitioner(Block &block) {
    return Partitioner(OpBuilder::atBlockEnd(&block), mesh, {sequenceParallel});
  }

  Mesh mesh;
};

} // namespace

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
  mesh = {{"data", "tensor"}, {data, tensor}};
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
      std::optional<Sharding> read = Sharding::get(wanted, mesh);
      if (!read)
        return variable.emitOpError("has the sharding ")
               << wanted << "; wanted axes of the mesh, data and tensor";
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
  auto variable = cast<VariableOp>(SymbolTable::lookupSymbolIn(
      getOperation(), cast<FlatSymbolRefAttr>(name).getAttr()));
  if (!variable.getWhole())
    return Sharding::whole(variable.getTensorType().getRank());
  return *Sharding::get(*variable.getSharding(), mesh);
}

LogicalResult ShardPass::visitAll(Partitioner &partitioner, Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
    if (failed(partitioner.visit(&op)))
      return failure();
  return success();
}

// Cut as its variable, apart from runs; padding is zero, so that neither norms
// nor updates see it. From stage 2 on it is summed over the replicas at once.
Value ShardPass::finishGradient(Partitioner &partitioner, Value grad,
                                Sharding variable, Sharding &yielded) {
  Resharder &resharder = partitioner.getResharder();
  RankedTensorType whole = tensorType(grad);
  yielded = partitioner.getSharding(grad);
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
  if (zero < 2 || data == 1 || whole.getRank() == 0)
    return local;
  Sharding scattered = {yielded.dims, {kData}, {}};
  local = resharder.reshard(local, whole, yielded, scattered);
  yielded = scattered;
  return local;
}

LogicalResult ShardPass::shardStep(StepOp step) {
  auto names = step->getAttrOfType<ArrayAttr>(kGradientsAttribute);
  if (!names)
    return step.emitOpError("does not say whose gradients it sums: run "
                            "-kiln-build-step first");
  OpBuilder builder(step);
  Location loc = step.getLoc();
  auto made = StepOp::create(builder, loc, step.getSymName(),
                             step.getInputsAttr(), step.getOutputsAttr());
  // A region of the new step with an argument for each of the old: inputs have
  // the batch, the others are given.
  auto begin = [&](Region &from, Region &to, Partitioner *&partitioner,
                   ArrayRef<std::pair<Type, Sharding>> given) {
    Block &block = to.emplaceBlock();
    partitioner = new Partitioner(OpBuilder::atBlockEnd(&block), mesh,
                                  {sequenceParallel});
    unsigned inputs = from.getNumArguments() - given.size();
    for (BlockArgument argument : from.getArguments()) {
      unsigned index = argument.getArgNumber();
      Type type = argument.getType();
      Sharding sharding = Sharding::whole(tensorType(argument).getRank());
      if (index >= inputs)
        std::tie(type, sharding) = given[index - inputs];
      partitioner->define(argument, block.addArgument(type, loc), sharding);
    }
  };
  auto end = [&](Region &to, ValueRange values) {
    OpBuilder atEnd = OpBuilder::atBlockEnd(&to.front());
    YieldOp::create(atEnd, loc, values);
  };
  auto yielded = [](Region &region) {
    return region.front().getTerminator()->getOperands();
  };
  Partitioner *raw = nullptr;

  begin(step.getPrologue(), made.getPrologue(), raw, {});
  std::unique_ptr<Partitioner> prologue(raw);
  if (failed(visitAll(*prologue, step.getPrologue().front())))
    return failure();
  SmallVector<Value> counts;
  SmallVector<std::pair<Type, Sharding>> known;
  for (Value value : yielded(step.getPrologue())) {
    counts.push_back(prologue->getWhole(value));
    known.push_back({value.getType(), Sharding::whole(0)});
  }
  end(made.getPrologue(), counts);

  begin(step.getAccumulate(), made.getAccumulate(), raw, known);
  std::unique_ptr<Partitioner> accumulate(raw);
  auto sums = yielded(step.getAccumulate());
  unsigned firstGradient = sums.size() - names.size();
  for (auto [index, name] : llvm::enumerate(names))
    accumulate->wish(sums[firstGradient + index], getVariableSharding(name));
  accumulate->spreadWishes(step.getAccumulate().front());
  if (failed(visitAll(*accumulate, step.getAccumulate().front())))
    return failure();
  SmallVector<Value> terms;
  // Taken anew: ops that were taken apart have other results.
  for (auto [index, value] : llvm::enumerate(yielded(step.getAccumulate()))) {
    Sharding sharding;
    if (index >= firstGradient) {
      Sharding variable = getVariableSharding(names[index - firstGradient]);
      terms.push_back(finishGradient(*accumulate, value, variable, sharding));
    } else {
      sharding = Sharding::whole(tensorType(value).getRank());
      sharding.partial = accumulate->getSharding(value).partial;
      terms.push_back(accumulate->get(value, sharding));
    }
    known.push_back({terms.back().getType(), sharding});
  }
  end(made.getAccumulate(), terms);

  begin(step.getUpdate(), made.getUpdate(), raw, known);
  std::unique_ptr<Partitioner> update(raw);
  for (BlockArgument argument : step.getUpdate().getArguments()) {
    Sharding sharding = update->getSharding(argument);
    if (sharding.partial.empty() && !(zero == 1 && data > 1))
      continue;
    bool isGradient = argument.getArgNumber() >=
                      step.getUpdate().getNumArguments() - names.size();
    Sharding summed = {sharding.dims, sharding.flat, {}};
    if (isGradient && zero >= 1 && data > 1 &&
        tensorType(argument).getRank() > 0)
      summed.flat = {kData};
    Value local = update->get(argument, summed);
    update->define(argument, local, summed);
  }
  if (failed(visitAll(*update, step.getUpdate().front())))
    return failure();
  SmallVector<Value> reports;
  for (Value value : yielded(step.getUpdate()))
    reports.push_back(update->getWhole(value));
  end(made.getUpdate(), reports);
  step.erase();
  return success();
}

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
  Partitioner partitioner = makePartitioner(block);
  for (auto [whole, local, sharding] : llvm::zip_equal(
           function.getArguments(), block.getArguments(), shardings))
    partitioner.define(whole, local, sharding);
  if (failed(visitAll(partitioner, function.front())))
    return failure();
  SmallVector<Value> results;
  for (Value value : function.front().getTerminator()->getOperands())
    results.push_back(partitioner.getWhole(value));
  OpBuilder atEnd = OpBuilder::atBlockEnd(&block);
  func::ReturnOp::create(atEnd, loc, results);
  function.erase();
  return success();
}

} // namespace kiln
