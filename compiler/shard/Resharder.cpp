// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/shard/Resharder.h"

#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace kiln::shard {

Type getMovedType(Type element) {
  return element.isInteger(1) ? IntegerType::get(element.getContext(), 32)
                              : element;
}

bool isWidened(Value full) {
  auto convert = full.getDefiningOp<ConvertOp>();
  return convert && !isNarrow(tensorType(full).getElementType()) &&
         isNarrow(tensorType(convert.getOperand()).getElementType());
}

static bool containsAll(ArrayRef<unsigned> axes, ArrayRef<unsigned> wanted) {
  return llvm::all_of(
      wanted, [&](unsigned axis) { return llvm::is_contained(axes, axis); });
}

static void drop(Axes &axes, ArrayRef<unsigned> dropped) {
  llvm::erase_if(
      axes, [&](unsigned axis) { return llvm::is_contained(dropped, axis); });
}

// Partial sums over axes that the target is cut by become a reduce-scatter;
// over other axes, an all-reduce.
void Resharder::planPartial(SmallVectorImpl<Step> &steps, Sharding &from,
                            const Sharding &to) const {
  auto add = [&](Kind kind, std::optional<unsigned> dimension, const Cut &cut) {
    Sharding before = from;
    drop(from.partial, cut.axes);
    if (dimension)
      from.dims[*dimension] = cut;
    steps.push_back({kind, dimension, cut, before, from});
  };
  if (from.flat.empty())
    for (auto [dimension, cut] : llvm::enumerate(to.dims))
      if (!cut.isWhole() && from.dims[dimension].isWhole() &&
          containsAll(from.partial, cut.axes))
        add(Kind::ReduceScatter, dimension, cut);
  bool isScattered = from.flat.empty() && !to.flat.empty() &&
                     containsAll(from.partial, to.flat) && from.dims == to.dims;
  Axes rest = from.partial;
  drop(rest, to.partial);
  if (isScattered)
    drop(rest, to.flat);
  if (!rest.empty())
    add(Kind::AllReduce, std::nullopt, {rest, 1, 1});
}

SmallVector<Resharder::Step, 2> Resharder::plan(Sharding from,
                                                const Sharding &to) const {
  SmallVector<Step, 2> steps;
  auto add = [&](Kind kind, std::optional<unsigned> dimension, const Cut &cut,
                 const Sharding &after) {
    steps.push_back({kind, dimension, cut, from, after});
    from = after;
  };
  if (!from.flat.empty() && (from.flat != to.flat || from.dims != to.dims)) {
    Sharding after = from;
    after.flat.clear();
    add(Kind::AllGather, std::nullopt, {from.flat, 1, 1}, after);
  }
  planPartial(steps, from, to);
  // Gathers come before slices: an axis may move from one dimension to another.
  for (unsigned dimension = 0; dimension < from.dims.size(); ++dimension)
    if (Cut cut = from.dims[dimension];
        !cut.isWhole() && cut != to.dims[dimension]) {
      Sharding after = from;
      after.dims[dimension] = Cut();
      add(Kind::AllGather, dimension, cut, after);
    }
  for (auto [dimension, cut] : llvm::enumerate(to.dims))
    if (from.dims[dimension] != cut) {
      Sharding after = from;
      after.dims[dimension] = cut;
      add(Kind::AllSlice, dimension, cut, after);
    }
  if (from.flat != to.flat) {
    Sharding after = from;
    after.flat = to.flat;
    drop(after.partial, to.flat);
    bool isPartial = containsAll(from.partial, to.flat);
    add(isPartial ? Kind::ReduceScatter : Kind::AllSlice, std::nullopt,
        {to.flat, 1, 1}, after);
  }
  if (from != to)
    llvm::report_fatal_error("a sharding that cannot be reached");
  return steps;
}

int64_t Resharder::countMovedBytes(RankedTensorType full, const Sharding &from,
                                   const Sharding &to) const {
  int64_t bytes = 0;
  SmallVector<int64_t> shape(full.getShape());
  llvm::replace(shape, ShapedType::kDynamic, int64_t(1));
  auto sample =
      RankedTensorType::get(shape, getMovedType(full.getElementType()));
  for (const Step &step : plan(from, to)) {
    if (step.kind == Kind::AllSlice)
      continue;
    // An all-gather receives all shards but the device's own; a reduce-scatter
    // receives its own shard from every other device; an all-reduce is both.
    const Sharding &larger =
        step.kind == Kind::AllGather ? step.after : step.before;
    int64_t members = mesh.countParts(step.cut.axes);
    int64_t received =
        getByteSize(larger.localType(sample, mesh)) / members * (members - 1);
    bytes += step.kind == Kind::AllReduce ? 2 * received : received;
  }
  return bytes;
}

Value Resharder::allReduce(Value local, ArrayRef<unsigned> axes,
                           Combine combine) {
  Type element = tensorType(local).getElementType();
  if (Type moved = getSummedType(getMovedType(element)); moved != element) {
    Composer c(builder, local.getLoc());
    return c.convert(allReduce(c.convert(local, moved), axes, combine),
                     element);
  }
  return AllReduceOp::create(builder, origin.value_or(local.getLoc()),
                             local.getType(), local,
                             mesh.toNames(axes, builder.getContext()), combine)
      .getResult(0);
}

Value Resharder::emitCut(const Step &step, Value local, RankedTensorType type) {
  auto create = [&](auto op) -> Value {
    return decltype(op)::create(
               builder, origin.value_or(local.getLoc()), type, local,
               mesh.toNames(step.cut.axes, builder.getContext()),
               ArrayRef<int64_t>{int64_t(step.dimension.value_or(0))},
               ArrayRef<int64_t>{step.cut.blocks},
               ArrayRef<int64_t>{step.cut.unit})
        .getResult(0);
  };
  switch (step.kind) {
  case Kind::AllGather:
    return create(AllGatherOp());
  case Kind::ReduceScatter:
    return create(ReduceScatterOp());
  case Kind::AllSlice:
    return create(AllSliceOp());
  case Kind::AllReduce:
    break;
  }
  llvm_unreachable("an all-reduce cuts nothing");
}

Value Resharder::emit(const Step &step, Value local, RankedTensorType full) {
  if (step.kind == Kind::AllReduce)
    return allReduce(local, step.cut.axes, Combine::sum);
  RankedTensorType type = step.after.localType(full, mesh);
  if (step.dimension)
    return emitCut(step, local, type);
  // A flat cut is one of the flattened shard.
  Composer c(builder, local.getLoc());
  if (step.kind != Kind::AllGather)
    return emitCut(step, c.reshape(local, {tensorType(local).getNumElements()}),
                   type);
  auto flattened =
      RankedTensorType::get({type.getNumElements()}, type.getElementType());
  return c.reshape(emitCut(step, local, flattened), type.getShape());
}

Value Resharder::reshard(Value local, RankedTensorType full, Sharding from,
                         const Sharding &to) {
  Type element = full.getElementType(), moved = getMovedType(element);
  if (from.partial != to.partial)
    moved = getSummedType(moved);
  if (moved != element && from != to) {
    Composer c(builder, local.getLoc());
    Value result =
        reshard(c.convert(local, moved),
                RankedTensorType::get(full.getShape(), moved), from, to);
    return element.isInteger(1) ? c.compare(Predicate::gt, result, 0)
                                : c.convert(result, element);
  }
  for (const Step &step : plan(from, to))
    local = emit(step, local, full);
  return local;
}

// The runtime writes the rank along each axis into a variable once.
Value Resharder::coordinate(ArrayRef<unsigned> axes, Location loc) {
  Composer c(builder, loc);
  auto scalar = RankedTensorType::get({}, builder.getI32Type());
  auto module =
      builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  Value number;
  for (unsigned axis : axes) {
    std::string name = "coordinate." + mesh.names[axis];
    if (!module.lookupSymbol(name)) {
      OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
      VariableOp::create(top, loc, name, scalar, Role::coordinate);
    }
    Value place = ReadOp::create(builder, loc, scalar, name);
    if (number)
      number = c.add(c.mul(number, double(mesh.sizes[axis])), place);
    else
      number = place;
  }
  return number;
}

// A unit of a block is padding if its global index lies past the last unit.
Value Resharder::maskPadding(Value local, unsigned dimension, int64_t size,
                             const Cut &cut, double fill) {
  Composer c(builder, local.getLoc());
  RankedTensorType type = tensorType(local);
  int64_t units = cut.localUnits(size, mesh);
  Value number = c.iota(units);
  Value first = c.mul(coordinate(cut.axes, local.getLoc()), double(units));
  number = c.add(number, c.spread(first, number));
  Value isReal = c.compare(Predicate::lt, number, double(cut.countUnits(size)));
  if (cut.blocks > 1 || cut.unit > 1) {
    auto box = RankedTensorType::get({cut.blocks, units, cut.unit},
                                     builder.getI1Type());
    isReal = c.reshape(c.broadcast("u->bui", isReal, box),
                       {type.getDimSize(dimension)});
  }
  std::string letters = indexLetters(type.getRank());
  Value mask = c.broadcast(letters.substr(dimension, 1) + "->" + letters,
                           isReal, type.clone(builder.getI1Type()));
  if (!isa<FloatType>(type.getElementType())) // No select on integers.
    return c.mul(local, c.convert(mask, type.getElementType()));
  return c.select(mask, local, c.fill(fill, local));
}

} // namespace kiln::shard
