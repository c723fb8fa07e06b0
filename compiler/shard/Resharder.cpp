// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/shard/Resharder.h"

#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace kiln::shard {

Value Resharder::allReduce(Value value, ArrayRef<unsigned> axes) {
  return AllReduceOp::create(builder, value.getLoc(), value.getType(), value,
                             mesh.toNames(axes, builder.getContext()),
                             Combine::sum)
      .getResult(0);
}

template <typename Op>
Value Resharder::cutOp(Value value, RankedTensorType type, unsigned dimension,
                       const Cut &cut) {
  return Op::create(builder, value.getLoc(), type, value,
                    mesh.toNames(cut.axes, builder.getContext()),
                    ArrayRef<int64_t>{int64_t(dimension)},
                    ArrayRef<int64_t>{cut.blocks}, ArrayRef<int64_t>{cut.unit})
      .getResult(0);
}

// Terms over axes that the target is cut by are summed and cut in one go.
Value Resharder::reducePartial(Value value, RankedTensorType whole,
                               Sharding &from, const Sharding &to) {
  auto drop = [&](ArrayRef<unsigned> axes) {
    llvm::erase_if(from.partial, [&](unsigned axis) {
      return llvm::is_contained(axes, axis);
    });
  };
  auto isPartial = [&](ArrayRef<unsigned> axes) {
    return !axes.empty() && llvm::all_of(axes, [&](unsigned axis) {
      return llvm::is_contained(from.partial, axis);
    });
  };
  if (from.flat.empty())
    for (auto [dimension, cut] : llvm::enumerate(to.dims))
      if (from.dims[dimension].isWhole() && isPartial(cut.axes)) {
        drop(cut.axes);
        from.dims[dimension] = cut;
        value = cutOp<ReduceScatterOp>(value, from.localBox(whole, mesh),
                                       dimension, cut);
      }
  Axes rest;
  bool isScattered = from.flat.empty() && !to.flat.empty() &&
                     isPartial(to.flat) && from.dims == to.dims;
  for (unsigned axis : from.partial)
    if (!llvm::is_contained(to.partial, axis) &&
        !(isScattered && llvm::is_contained(to.flat, axis)))
      rest.push_back(axis);
  if (!rest.empty()) {
    drop(rest);
    value = allReduce(value, rest);
  }
  return value;
}

Value Resharder::flatten(Value value, RankedTensorType whole, Sharding &from,
                         const Sharding &to) {
  Composer c(builder, value.getLoc());
  RankedTensorType box = from.localBox(whole, mesh);
  Value run = c.reshape(value, {box.getNumElements()});
  Cut cut{to.flat, 1, 1};
  bool isPartial = llvm::all_of(to.flat, [&](unsigned axis) {
    return llvm::is_contained(from.partial, axis);
  });
  from.flat = to.flat;
  RankedTensorType type = from.localType(whole, mesh);
  if (!isPartial)
    return cutOp<AllSliceOp>(run, type, 0, cut);
  llvm::erase_if(from.partial, [&](unsigned axis) {
    return llvm::is_contained(to.flat, axis);
  });
  return cutOp<ReduceScatterOp>(run, type, 0, cut);
}

Value Resharder::unflatten(Value value, RankedTensorType whole,
                           Sharding &from) {
  Composer c(builder, value.getLoc());
  RankedTensorType box = from.localBox(whole, mesh);
  auto run =
      RankedTensorType::get({box.getNumElements()}, whole.getElementType());
  value = cutOp<AllGatherOp>(value, run, 0, Cut{from.flat, 1, 1});
  from.flat.clear();
  return c.reshape(value, box.getShape());
}

Value Resharder::gather(Value value, RankedTensorType whole, Sharding &from,
                        unsigned dimension) {
  Cut cut = std::exchange(from.dims[dimension], Cut());
  return cutOp<AllGatherOp>(value, from.localBox(whole, mesh), dimension, cut);
}

Value Resharder::reshard(Value local, RankedTensorType whole, Sharding from,
                         const Sharding &to) {
  // Collectives move numbers.
  if (whole.getElementType().isInteger(1) && from != to) {
    Composer c(builder, local.getLoc());
    Type number = builder.getI32Type();
    Value moved =
        reshard(c.convert(local, number),
                RankedTensorType::get(whole.getShape(), number), from, to);
    return c.compare(Predicate::gt, moved, 0);
  }
  if (!from.flat.empty() && (from.flat != to.flat || from.dims != to.dims))
    local = unflatten(local, whole, from);
  local = reducePartial(local, whole, from, to);
  // All that is in the way is gathered before anything is cut: an axis may move
  // from one dimension to another.
  for (unsigned dimension = 0; dimension < from.dims.size(); ++dimension)
    if (!from.dims[dimension].isWhole() &&
        from.dims[dimension] != to.dims[dimension])
      local = gather(local, whole, from, dimension);
  for (auto [dimension, cut] : llvm::enumerate(to.dims))
    if (from.dims[dimension] != cut) {
      from.dims[dimension] = cut;
      local =
          cutOp<AllSliceOp>(local, from.localBox(whole, mesh), dimension, cut);
    }
  if (from.flat != to.flat)
    local = flatten(local, whole, from, to);
  if (from != to)
    llvm::report_fatal_error("a sharding that cannot be reached");
  return local;
}

// Every axis has a variable that the runtime writes once.
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

// A unit of a block is padding if its number in the whole lies past the last.
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
  if (!isa<FloatType>(type.getElementType())) // Those have no select.
    return c.mul(local, c.convert(mask, type.getElementType()));
  return c.select(mask, local, c.fill(fill, local));
}

} // namespace kiln::shard
