// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/shard/Partitioner.h"

#include "mlir/IR/IRMapping.h"

#include <limits>

using namespace mlir;

namespace kiln::shard {

// What is gathered is used again by the ops that come soon, and made again for
// those that come later, such as the backward pass: it would be kept until
// then. A layer's forward pass has about as many ops that read one weight.
static constexpr unsigned kReuse = 12;

Partitioner::Partitioner(OpBuilder given, const Mesh &mesh, Options options)
    : builder(given), mesh(mesh), options(options), resharder(builder, mesh) {}

void Partitioner::define(Value whole, Value local, const Sharding &sharding) {
  known[whole] = {
      sharding, local, {}, !sharding.isPadded(tensorType(whole), mesh)};
}

void Partitioner::wish(Value whole, const Sharding &sharding) {
  wishes[whole] = sharding;
}

void Partitioner::spreadWishes(Block &block) {
  for (Operation &op : llvm::reverse(block)) {
    if (!isElementwise(&op) || !isa<Linear>(op))
      continue;
    auto found = wishes.find(op.getResult(0));
    if (found == wishes.end())
      continue;
    Sharding sharding = found->second;
    for (Value operand : op.getOperands())
      wishes.try_emplace(operand, sharding);
  }
}

Sharding Partitioner::getSharding(Value whole) {
  return known.find(whole)->second.sharding;
}

// Whether all elements are the same, without being looked at.
bool Partitioner::isUniform(Value whole) {
  Operation *op = whole.getDefiningOp();
  if (!op || !isLazy(whole))
    return false;
  if (isa<BroadcastOp>(op))
    return tensorType(op->getOperand(0)).getRank() == 0;
  return isElementwise(op) &&
         llvm::all_of(op->getOperands(),
                      [&](Value operand) { return isUniform(operand); });
}

bool Partitioner::hasZeroPadding(Value whole) {
  const Known &entry = known.find(whole)->second;
  return entry.local && entry.hasZeroPadding;
}

// A dimension that is cut for a use is padded with zeros.
bool Partitioner::hasZeroPadding(Value whole, unsigned dimension,
                                 const Cut &cut) {
  const Known &entry = known.find(whole)->second;
  return entry.local &&
         (entry.hasZeroPadding || entry.sharding.dims[dimension] != cut);
}

// Zeros give zeros where an op is linear; what they are multiplied by must be
// no infinity, so it is zero there, too, or is what all elements have. What
// they are divided by, in which no op is linear, must not be zero.
bool Partitioner::keepsZeroPadding(Operation *op) {
  auto linear = dyn_cast<Linear>(op);
  if (!linear || !(isElementwise(op) || isa<TransposeOp>(op)))
    return false;
  OperandGroups groups = linear.getLinearGroups();
  return llvm::any_of(groups, [&](const auto &group) {
    return llvm::all_of(llvm::seq(op->getNumOperands()), [&](unsigned operand) {
      Value value = op->getOperand(operand);
      bool isLinearInIt = llvm::any_of(groups, [&](const auto &other) {
        return llvm::is_contained(other, operand);
      });
      return (isLinearInIt && hasZeroPadding(value)) ||
             (!llvm::is_contained(group, operand) && isUniform(value));
    });
  });
}

Value Partitioner::getWhole(Value whole) {
  return get(whole, Sharding::whole(tensorType(whole).getRank()));
}

Value Partitioner::get(Value whole, const Sharding &wanted) {
  {
    Known &entry = known.find(whole)->second;
    if (entry.local && entry.sharding == wanted)
      return entry.local;
    for (const Version &version : entry.versions)
      if (version.sharding == wanted && time - version.time <= kReuse)
        return version.local;
  }
  Known entry = known.find(whole)->second; // Others may be added meanwhile.
  Value local = entry.local ? resharder.reshard(entry.local, tensorType(whole),
                                                entry.sharding, wanted)
                            : materialise(whole.getDefiningOp(), wanted);
  auto &versions = known.find(whole)->second.versions;
  llvm::erase_if(versions, [&](const Version &version) {
    return version.sharding == wanted;
  });
  versions.push_back({wanted, local, time});
  return local;
}

//===----------------------------------------------------------------------===//
// Sums that are still in terms
//===----------------------------------------------------------------------===//

static bool isZero(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  auto constant = broadcast ? broadcast.getOperand().getDefiningOp<ConstantOp>()
                            : ConstantOp();
  return constant && constant.getValue().isZero();
}

// For each operand the partial axes that it may keep, because the op is linear
// in it: the sum over devices is then taken later, and once.
SmallVector<Axes> Partitioner::keepPartial(Operation *op) {
  SmallVector<Axes> kept(op->getNumOperands());
  auto linear = dyn_cast<Linear>(op);
  if (!linear)
    return kept;
  // Gradients are rounded by micro-batch before they are summed, so they may be
  // by replica, too.
  if (isa<ConvertOp>(op) && linear.getLinearGroups().empty() &&
      isa<FloatType>(tensorType(op->getResult(0)).getElementType()) &&
      llvm::is_contained(getSharding(op->getOperand(0)).partial, kData))
    kept[0] = {kData};
  for (const auto &group : linear.getLinearGroups()) {
    std::optional<Axes> common;
    for (unsigned operand : group) {
      if (isZero(op->getOperand(operand)))
        continue;
      Axes axes = getSharding(op->getOperand(operand)).partial;
      if (!common)
        common = axes;
      else
        llvm::erase_if(*common, [&](unsigned axis) {
          return !llvm::is_contained(axes, axis);
        });
    }
    if (!common || common->empty())
      continue;
    for (unsigned operand : group)
      kept[operand] = *common;
    return kept;
  }
  return kept;
}

// Sums of what samples have are taken at once, along the sequence if norms are
// cut so; those of gradients and totals later.
void Partitioner::settle(Value whole, Value local, Sharding sharding) {
  RankedTensorType type = tensorType(whole);
  if (type.hasStaticShape() || sharding.partial.empty())
    return define(whole, local, sharding);
  Sharding settled = sharding;
  settled.partial.clear();
  int64_t parts = mesh.countParts(sharding.partial);
  if (options.isSequenceParallel && type.getRank() == 3 &&
      type.isDynamicDim(0) && settled.isWhole() && type.getDimSize(1) >= parts)
    settled.dims[1] = {sharding.partial, 1, 1};
  define(whole, resharder.reshard(local, type, sharding, settled), settled);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

LogicalResult Partitioner::visit(Operation *op) {
  if (!isInParts)
    ++time;
  bool keepsZeros = keepsZeroPadding(op);
  if (failed(dispatch(op)))
    return failure();
  for (Value result : op->getResults()) {
    if (!getSharding(result).usesAxesOnce())
      return op->emitOpError("would be cut twice over one axis");
    if (keepsZeros && !isLazy(result))
      markZeroPadding(result);
  }
  return success();
}

LogicalResult Partitioner::dispatch(Operation *op) {
  if (auto read = dyn_cast<ReadOp>(op))
    return visitRead(read);
  if (auto assign = dyn_cast<AssignOp>(op))
    return visitAssign(assign);
  if (isLazyOp(op)) {
    known[op->getResult(0)] = {inferLazy(op), Value(), {}};
    return success();
  }
  for (Value operand : op->getOperands())
    if (Sharding sharding = getSharding(operand); !sharding.flat.empty())
      if (isElementwiseOnRuns(op) ||
          (isa<SumOp>(op) && tensorType(op->getResult(0)).getRank() == 0 &&
           hasZeroPadding(operand)))
        return visitFlat(op, sharding);
  if (auto reshape = dyn_cast<ReshapeOp>(op))
    return visitReshape(reshape);
  if (auto defer = dyn_cast<DeferOp>(op))
    return visitDefer(defer);
  if (auto slice = dyn_cast<SliceOp>(op))
    return visitSlice(slice);
  if (auto concatenate = dyn_cast<ConcatenateOp>(op))
    return visitConcatenate(concatenate);
  std::optional<FactorRule> rule = FactorRule::get(op);
  if (!rule)
    return op->emitOpError("does not say how it can be cut over devices");
  if (isa<Composite>(op) && isCutWhereWhole(op, *rule))
    return visitByParts(op, *rule);
  return visitFactored(op, *rule);
}

// A whole variable of which a part is wished for is cut before anything is
// computed from it.
LogicalResult Partitioner::visitRead(ReadOp read) {
  auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
      read, read.getVariableAttr().getAttr());
  Value local = ReadOp::create(builder, read.getLoc(), variable.getTensorType(),
                               read.getVariable());
  Sharding sharding = Sharding::of(variable, mesh);
  if (auto wish = wishes.find(read.getResult()); wish != wishes.end()) {
    local = resharder.reshard(local, variable.getWholeType(), sharding,
                              wish->second);
    sharding = wish->second;
  }
  define(read.getResult(), local, sharding);
  markZeroPadding(read.getResult()); // See visitAssign.
  return success();
}

// Padding of a variable starts as zero and stays so. An optimizer makes no step
// of a gradient that is zero; what else is assigned is masked.
LogicalResult Partitioner::visitAssign(AssignOp assign) {
  auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
      assign, assign.getVariableAttr().getAttr());
  Value whole = assign.getValue();
  Sharding sharding = Sharding::of(variable, mesh);
  bool isOfOptimizer = variable.getRole() == Role::parameter ||
                       variable.getRole() == Role::moment;
  Value local = get(whole, sharding);
  if (!isOfOptimizer && !hasZeroPadding(whole))
    for (auto [dimension, cut] : llvm::enumerate(sharding.dims))
      if (int64_t size = tensorType(whole).getDimSize(dimension);
          cut.isPadded(size, mesh))
        local = resharder.maskPadding(local, dimension, size, cut, 0);
  AssignOp::create(builder, assign.getLoc(), assign.getVariable(), local);
  return success();
}

// Elementwise on runs of elements, or the sum over all of them.
LogicalResult Partitioner::visitFlat(Operation *op, const Sharding &flat) {
  Sharding wanted = flat;
  wanted.partial.clear();
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, get(operand, wanted));
  Value result = op->getResult(0);
  if (isa<SumOp>(op)) {
    Composer c(builder, op->getLoc());
    Sharding sharding = Sharding::whole(0);
    sharding.partial = flat.flat;
    for (const Cut &cut : flat.dims)
      sharding.partial.append(cut.axes);
    llvm::sort(sharding.partial);
    define(result, c.sum("a->", mapping.lookup(op->getOperand(0))), sharding);
    return success();
  }
  Operation *copy = builder.clone(*op, mapping);
  copy->getResult(0).setType(wanted.localType(tensorType(result), mesh));
  define(result, copy->getResult(0), wanted);
  return success();
}

// A device waits for what it has of `until`.
LogicalResult Partitioner::visitDefer(DeferOp op) {
  Sharding sharding = getSharding(op.getOperand());
  Value local = get(op.getOperand(), sharding);
  Value until = get(op.getUntil(), getSharding(op.getUntil()));
  define(op.getResult(), DeferOp::create(builder, op.getLoc(), local, until),
         sharding);
  if (hasZeroPadding(op.getOperand()))
    markZeroPadding(op.getResult());
  return success();
}

//===----------------------------------------------------------------------===//
// Ops by their factors
//===----------------------------------------------------------------------===//

bool Partitioner::isCutWhereWhole(Operation *op, const FactorRule &rule) {
  for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
    if (!isLazy(operand))
      for (auto [cut, factor] :
           llvm::zip_equal(getSharding(operand).dims, dims))
        if (!cut.isWhole() && rule.mustBeWhole[factor])
          return true;
  return false;
}

// Takes an op apart in the whole program and visits what it is made of.
LogicalResult Partitioner::visitByParts(Operation *op, const FactorRule &rule) {
  OpBuilder before(op);
  Operation *last = op->getPrevNode();
  SmallVector<RankedTensorType> parts;
  for (Value operand : op->getOperands())
    parts.push_back(getSharding(operand).localBox(tensorType(operand), mesh));
  SmallVector<Value> values =
      cast<Composite>(op).decomposeForParts(before, parts);
  if (values.empty())
    return visitFactored(op, rule);
  SmallVector<Operation *> made;
  for (Operation *each = last ? last->getNextNode() : &op->getBlock()->front();
       each != op; each = each->getNextNode())
    made.push_back(each);
  // What the op is wished to be its parts are, too.
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
    if (auto found = wishes.find(result); found != wishes.end()) {
      Sharding sharding = found->second;
      wishes.try_emplace(value, sharding);
    }
  bool wasInParts = std::exchange(isInParts, true);
  for (Operation *each : made)
    if (failed(visit(each)))
      return failure();
  isInParts = wasInParts;
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values)) {
    Known entry = known.find(value)->second;
    known[result] = entry;
    result.replaceAllUsesWith(value);
  }
  return success();
}

// Whether padding can be made to add nothing: by zeros where an op is linear,
// or by what fits the reduction.
static bool isMaskable(Operation *op) { return isa<Structured, Linear>(op); }

static bool looksUpRows(Operation *op) {
  auto placed = dyn_cast<Placed>(op);
  return placed && !placed.getContiguousFactors().empty();
}

static bool isContiguous(Operation *op, const FactorRule &rule,
                         unsigned factor) {
  auto placed = dyn_cast<Placed>(op);
  return placed && placed.getContiguousFactors().contains(rule.letters[factor]);
}

// Weights stay where they are; otherwise what is cut in a result is better than
// a sum over devices, and what more operands agree on better than less.
std::optional<Partitioner::Choice> Partitioner::choose(Operation *op,
                                                       const FactorRule &rule) {
  std::optional<Choice> best;
  int bestScore = 0;
  auto propose = [&](unsigned factor, const Cut &cut, int64_t size, int score) {
    bool isReduced = rule.isReduced(factor);
    if (rule.mustBeWhole[factor] ||
        (isReduced && cut.isPadded(size, mesh) && !isMaskable(op)) ||
        (cut.blocks > 1 && isContiguous(op, rule, factor)))
      return;
    score += isReduced ? 0 : 100;
    for (auto [operand, dims] :
         llvm::zip_equal(op->getOperands(), rule.operands))
      if (auto dim = FactorRule::findDim(dims, factor);
          dim && !isLazy(operand) && getSharding(operand).dims[*dim] == cut)
        score += 10;
    if (!best || score > bestScore) {
      best = Choice{factor, cut};
      bestScore = score;
    }
  };
  auto proposeAll = [&](Value value, ArrayRef<Cut> cuts,
                        const FactorRule::Dims &dims, int score) {
    for (auto [dim, cut] : llvm::enumerate(cuts))
      if (!cut.isWhole())
        propose(dims[dim], cut, tensorType(value).getDimSize(dim), score);
  };
  for (bool isLazyTurn : {false, true}) {
    if (best)
      break;
    for (auto [operand, dims] :
         llvm::zip_equal(op->getOperands(), rule.operands)) {
      if (isLazy(operand) != isLazyTurn)
        continue;
      RankedTensorType type = tensorType(operand);
      bool isWeight = type.getRank() > 0 && type.hasStaticShape();
      proposeAll(operand, getSharding(operand).dims, dims, isWeight ? 1000 : 0);
    }
    for (auto [result, dims] : llvm::zip_equal(op->getResults(), rule.results))
      if (auto wish = wishes.find(result); wish != wishes.end())
        proposeAll(result, wish->second.dims, dims, 500);
  }
  return best;
}

Sharding Partitioner::apply(const std::optional<Choice> &choice,
                            const FactorRule::Dims &dims) {
  Sharding sharding = Sharding::whole(dims.size());
  if (choice)
    if (auto dim = FactorRule::findDim(dims, choice->factor))
      sharding.dims[*dim] = choice->cut;
  return sharding;
}

// What a device has of each operand, with nothing in the padding that a
// reduction would see.
SmallVector<Value> Partitioner::cutOperands(Operation *op,
                                            const FactorRule &rule,
                                            const std::optional<Choice> &choice,
                                            ArrayRef<Axes> kept) {
  bool isMax = rule.reduction == Reduction::max;
  double fill = isMax ? -std::numeric_limits<double>::infinity() : 0;
  SmallVector<Value> locals;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    const FactorRule::Dims &dims = rule.operands[index];
    Sharding wanted = apply(choice, dims);
    wanted.partial = kept[index];
    locals.push_back(get(operand, wanted));
    RankedTensorType type = tensorType(operand);
    // What is counted is not summed; but there is a row of number zero, and
    // maybe none of the number in the padding.
    bool isNumber = !isa<FloatType>(type.getElementType());
    if (isNumber && !looksUpRows(op))
      continue;
    for (auto [dim, cut] : llvm::enumerate(wanted.dims))
      if (cut.isPadded(type.getDimSize(dim), mesh) &&
          (isNumber || rule.isReduced(dims[dim])) &&
          !isContiguous(op, rule, dims[dim]) &&
          (isMax || !hasZeroPadding(operand, dim, cut)))
        locals.back() = resharder.maskPadding(locals.back(), dim,
                                              type.getDimSize(dim), cut, fill);
  }
  return locals;
}

// Partial over what operands were, over a factor that a result lacks, and over
// the replicas if it lacks the batch.
SmallVector<Sharding>
Partitioner::inferResults(Operation *op, const FactorRule &rule,
                          const std::optional<Choice> &choice,
                          ArrayRef<Axes> kept) {
  std::optional<unsigned> batch;
  Axes inherited;
  for (auto [operand, dims, axes] :
       llvm::zip_equal(op->getOperands(), rule.operands, kept)) {
    for (auto [size, factor] :
         llvm::zip_equal(tensorType(operand).getShape(), dims))
      if (ShapedType::isDynamic(size))
        batch = factor;
    if (!axes.empty())
      inherited = axes;
  }
  SmallVector<Sharding> shardings;
  for (const FactorRule::Dims &dims : rule.results) {
    Sharding sharding = apply(choice, dims);
    sharding.partial = inherited;
    if (choice && !FactorRule::findDim(dims, choice->factor))
      sharding.partial.append(choice->cut.axes);
    if (batch && mesh.sizes[kData] > 1 && !FactorRule::findDim(dims, *batch) &&
        !llvm::is_contained(sharding.partial, kData))
      sharding.partial.push_back(kData);
    llvm::sort(sharding.partial);
    shardings.push_back(sharding);
  }
  return shardings;
}

// A choice, seen by the letters of the op.
class Partitioner::ChosenPlace : public PartPlace {
public:
  ChosenPlace(Partitioner &partitioner, Operation *op, const FactorRule &rule,
              const std::optional<Choice> &choice)
      : partitioner(partitioner), op(op), rule(rule), choice(choice) {}

  bool isCut(char letter) override { return !getCut(letter).isWhole(); }

  int64_t getSize(char letter) override {
    unsigned factor = rule.letters.find(letter);
    auto find = [&](ValueRange values,
                    ArrayRef<FactorRule::Dims> all) -> std::optional<int64_t> {
      for (auto [value, dims] : llvm::zip_equal(values, all))
        if (auto dim = FactorRule::findDim(dims, factor))
          return tensorType(value).getDimSize(*dim);
      return std::nullopt;
    };
    if (auto size = find(op->getOperands(), rule.operands))
      return *size;
    return *find(op->getResults(), rule.results);
  }

  Value getFirst(char letter) override {
    return partitioner.numberFirst(getSize(letter), getCut(letter),
                                   op->getLoc());
  }

  Value getNumbers(char letter) override {
    return partitioner.numberElements(getSize(letter), getCut(letter),
                                      op->getLoc());
  }

private:
  Cut getCut(char letter) {
    return choice && rule.letters[choice->factor] == letter ? choice->cut
                                                            : Cut();
  }

  Partitioner &partitioner;
  Operation *op;
  const FactorRule &rule;
  const std::optional<Choice> &choice;
};

LogicalResult Partitioner::visitFactored(Operation *op,
                                         const FactorRule &rule) {
  std::optional<Choice> choice = choose(op, rule);
  SmallVector<Axes> kept = keepPartial(op);
  // A term cannot be cut by the axis whose terms it is one of.
  if (choice)
    for (Axes &axes : kept)
      llvm::erase_if(axes, [&](unsigned axis) {
        return llvm::is_contained(choice->cut.axes, axis);
      });
  Operation *copy = builder.clone(*op);
  builder.setInsertionPoint(copy);
  copy->setOperands(cutOperands(op, rule, choice, kept));
  SmallVector<Sharding> shardings = inferResults(op, rule, choice, kept);
  if (auto placed = dyn_cast<Placed>(copy)) {
    ChosenPlace place(*this, op, rule, choice);
    placed.place(builder, place);
  }
  builder.setInsertionPointAfter(copy);
  for (auto [whole, local, sharding] :
       llvm::zip_equal(op->getResults(), copy->getResults(), shardings)) {
    local.setType(sharding.localBox(tensorType(whole), mesh));
    Value value = local;
    if (rule.reduction == Reduction::max && !sharding.partial.empty()) {
      value = AllReduceOp::create(
                  builder, op->getLoc(), local.getType(), local,
                  mesh.toNames(sharding.partial, builder.getContext()),
                  Combine::max)
                  .getResult(0);
      sharding.partial.clear();
    }
    settle(whole, value, sharding);
  }
  return success();
}

} // namespace kiln::shard
