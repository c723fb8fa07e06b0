// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/shard/Partitioner.h"
#include "dialects/kiln/Origin.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/Support/SaveAndRestore.h"

#include <limits>

using namespace mlir;

namespace kiln::shard {

Partitioner::Partitioner(OpBuilder given, const Mesh &mesh, Options options)
    : builder(given), mesh(mesh), options(options),
      resharder(builder, mesh, options.messages) {}

void Partitioner::define(Value full, Value local, const Sharding &sharding) {
  known[full] = {
      sharding, local, {}, !sharding.isPadded(tensorType(full), mesh)};
}

void Partitioner::prefer(Value full, const Sharding &sharding) {
  preferred[full] = sharding;
}

void Partitioner::spreadPreferences(Block &block) {
  for (Operation &op : llvm::reverse(block)) {
    if (!isElementwise(&op) || !isa<Linear>(op))
      continue;
    auto found = preferred.find(op.getResult(0));
    if (found == preferred.end())
      continue;
    Sharding sharding = found->second;
    for (Value operand : op.getOperands())
      preferred.try_emplace(operand, sharding);
  }
}

Sharding Partitioner::getSharding(Value full) {
  return known.find(full)->second.sharding;
}

// Whether all elements are known to be the same.
bool Partitioner::isUniform(Value full) {
  Operation *op = full.getDefiningOp();
  if (!op || !isLazy(full))
    return false;
  if (isMovement(op, Movement::repeat))
    return tensorType(op->getOperand(0)).getRank() == 0;
  return isElementwise(op) &&
         llvm::all_of(op->getOperands(),
                      [&](Value operand) { return isUniform(operand); });
}

bool Partitioner::hasZeroPadding(Value full) {
  const Known &entry = known.find(full)->second;
  return entry.local && entry.hasZeroPadding;
}

// A dimension that is cut for a use is padded with zeros.
bool Partitioner::hasZeroPadding(Value full, unsigned dimension,
                                 const Cut &cut) {
  const Known &entry = known.find(full)->second;
  return entry.local &&
         (entry.hasZeroPadding || entry.sharding.dims[dimension] != cut);
}

// Zeros give zeros where an op is linear. The other factor must be finite in
// the padding: zero or uniform. No op is linear in a divisor.
bool Partitioner::keepsZeroPadding(Operation *op) {
  auto linear = dyn_cast<Linear>(op);
  if (!linear || !(isElementwise(op) || isMovement(op, Movement::permute)))
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

Value Partitioner::getFull(Value full) {
  return get(full, Sharding::whole(tensorType(full).getRank()));
}

const Partitioner::Version *
Partitioner::findVersion(const Known &entry, const Sharding &wanted) const {
  for (const Version &version : entry.versions)
    if (version.sharding == wanted &&
        (version.made.stretch == now.stretch ||
         now.op - version.made.op <= kReusedAcrossOps))
      return &version;
  return nullptr;
}

Value Partitioner::get(Value full, const Sharding &wanted) {
  const Known &entry = known.find(full)->second;
  if (entry.local && entry.sharding == wanted)
    return entry.local;
  if (const Version *version = findVersion(entry, wanted))
    return version->local;
  // Materialising adds values, which may move the entry.
  Value local;
  if (!entry.local)
    local = materialise(full.getDefiningOp(), wanted);
  else if (isWidened(full) && entry.sharding.partial.empty())
    local = moveWidened(full, wanted);
  else
    local = resharder.reshard(entry.local, tensorType(full), entry.sharding,
                              wanted);
  auto &versions = known.find(full)->second.versions;
  llvm::erase_if(versions, [&](const Version &version) {
    return version.sharding == wanted;
  });
  versions.push_back({wanted, local, now});
  return local;
}

// Half as many bytes are moved before the conversion.
Value Partitioner::moveWidened(Value full, const Sharding &wanted) {
  Value narrow = get(full.getDefiningOp()->getOperand(0), wanted);
  return Composer(builder, full.getLoc())
      .convert(narrow, tensorType(full).getElementType());
}

//===----------------------------------------------------------------------===//
// Partial sums
//===----------------------------------------------------------------------===//

// For each operand the partial axes that it may keep, because the op is linear
// in it: the sum over devices is then taken later, and once. A partial sum
// cannot be cut by an axis over which it is partial.
SmallVector<Axes>
Partitioner::keepPartial(Operation *op, const std::optional<Choice> &choice) {
  SmallVector<Axes> kept(op->getNumOperands());
  auto linear = dyn_cast<Linear>(op);
  if (!linear)
    return kept;
  auto without = [&](Axes axes) {
    llvm::erase_if(axes, [&](unsigned axis) {
      return choice && llvm::is_contained(choice->cut.axes, axis);
    });
    return axes;
  };
  // Gradients are rounded per micro-batch before they are summed, so they may
  // be rounded per replica, too.
  if (linear.getLinearGroups().empty() &&
      isa<FloatType>(tensorType(op->getResult(0)).getElementType()) &&
      llvm::is_contained(getSharding(op->getOperand(0)).partial, kData))
    kept[0] = without({kData});
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
      kept[operand] = without(*common);
    return kept;
  }
  return kept;
}

// Partial sums of tensors with a batch are added at once, along the sequence if
// norms are cut so; those of gradients and totals later.
Sharding Partitioner::settled(RankedTensorType type, const Sharding &sharding) {
  if (type.hasStaticShape() || sharding.partial.empty())
    return sharding;
  Sharding settled = sharding;
  settled.partial.clear();
  int64_t shards = mesh.countParts(sharding.partial);
  if (options.isSequenceParallel && type.getRank() == 3 &&
      type.isDynamicDim(0) && settled.isWhole() && type.getDimSize(1) >= shards)
    settled.dims[1] = {sharding.partial, 1, 1};
  return settled;
}

void Partitioner::settle(Value full, Value local, Sharding sharding) {
  RankedTensorType type = tensorType(full);
  Sharding to = settled(type, sharding);
  if (to != sharding) {
    RankedTensorType given = type.clone(tensorType(local).getElementType());
    local = resharder.reshard(local, given, sharding, to);
    local =
        Composer(builder, full.getLoc()).convert(local, type.getElementType());
  }
  define(full, local, to);
}

// The sum over devices is rounded, and not its terms, where messages are wide.
void Partitioner::keepUnrounded(Value local, const Sharding &sharding) {
  RankedTensorType type = tensorType(local);
  Type summed = resharder.getSummedType(type.getElementType());
  if (isa<Accumulating>(local.getDefiningOp()) &&
      settled(type, sharding) != sharding)
    local.setType(type.clone(summed));
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

LogicalResult Partitioner::visit(Operation *op) {
  if (!isDecomposing) {
    ++now.op;
    Attribute entered = getLayer(op->getLoc());
    if (entered != layer)
      ++now.stretch;
    layer = entered;
  }
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

static bool isSumOfAll(Operation *op) {
  return isSum(op) && tensorType(op->getResult(0)).getRank() == 0;
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
      if (isElementwiseOnFlat(op) ||
          (isSumOfAll(op) && hasZeroPadding(operand)))
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
  if (isa<Composite>(op) && isCutWhereFull(op, *rule))
    return visitDecomposed(op, *rule);
  return visitFactored(op, *rule);
}

// A replicated variable that is preferred cut is cut before anything is
// computed from it.
LogicalResult Partitioner::visitRead(ReadOp read) {
  auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
      read, read.getVariableAttr().getAttr());
  Value local = ReadOp::create(builder, variable.getLoc(),
                               variable.getTensorType(), read.getVariable());
  Sharding sharding = Sharding::of(variable, mesh);
  if (auto found = preferred.find(read.getResult()); found != preferred.end()) {
    local = resharder.reshard(local, variable.getWholeType(), sharding,
                              found->second);
    sharding = found->second;
  }
  define(read.getResult(), local, sharding);
  markZeroPadding(read.getResult()); // See visitAssign.
  return success();
}

// Padding of a variable starts as zero and stays so. An optimizer makes no step
// where the gradient is zero, and working copies are rounded from parameters;
// other values are masked.
LogicalResult Partitioner::visitAssign(AssignOp assign) {
  auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(
      assign, assign.getVariableAttr().getAttr());
  llvm::SaveAndRestore origin(resharder.origin,
                              std::optional<Location>(variable.getLoc()));
  Value full = assign.getValue();
  Sharding sharding = Sharding::of(variable, mesh);
  bool isOfOptimizer = llvm::is_contained(
      {Role::parameter, Role::working, Role::moment}, variable.getRole());
  Value local = get(full, sharding);
  if (!isOfOptimizer && !hasZeroPadding(full))
    for (auto [dimension, cut] : llvm::enumerate(sharding.dims))
      if (int64_t size = tensorType(full).getDimSize(dimension);
          cut.isPadded(size, mesh))
        local = resharder.maskPadding(local, dimension, size, cut, 0);
  AssignOp::create(builder, assign.getLoc(), assign.getVariable(), local);
  return success();
}

// Elementwise on flattened shards, or the sum over all elements.
LogicalResult Partitioner::visitFlat(Operation *op, const Sharding &flat) {
  Sharding wanted = flat;
  wanted.partial.clear();
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, get(operand, wanted));
  Value result = op->getResult(0);
  if (isSumOfAll(op)) {
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

// A device waits for its own shard of `until`.
LogicalResult Partitioner::visitDefer(DeferOp op) {
  Sharding sharding = getSharding(op.getOperand());
  Value local = get(op.getOperand(), sharding);
  Value until = get(op.getUntil(), getSharding(op.getUntil()));
  Composer c(builder, op.getLoc());
  define(op.getResult(), c.defer(local, until), sharding);
  if (hasZeroPadding(op.getOperand()))
    markZeroPadding(op.getResult());
  return success();
}

//===----------------------------------------------------------------------===//
// Ops by their factors
//===----------------------------------------------------------------------===//

bool Partitioner::isCutWhereFull(Operation *op, const FactorRule &rule) {
  for (auto [operand, dims] : llvm::zip_equal(op->getOperands(), rule.operands))
    if (!isLazy(operand))
      for (auto [cut, factor] :
           llvm::zip_equal(getSharding(operand).dims, dims))
        if (!cut.isWhole() && rule.mustBeWhole[factor])
          return true;
  return false;
}

// Decomposes an op in the full program and visits the ops that it is made of.
LogicalResult Partitioner::visitDecomposed(Operation *op,
                                           const FactorRule &rule) {
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
  // Decomposed results inherit the op's preferred sharding.
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
    if (auto found = preferred.find(result); found != preferred.end()) {
      Sharding sharding = found->second;
      preferred.try_emplace(value, sharding);
    }
  bool wasDecomposing = std::exchange(isDecomposing, true);
  for (Operation *each : made)
    if (failed(visit(each)))
      return failure();
  isDecomposing = wasDecomposing;
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values)) {
    Known entry = known.find(value)->second;
    known[result] = entry;
    result.replaceAllUsesWith(value);
  }
  return success();
}

static bool looksUpRows(Operation *op) {
  auto placed = dyn_cast<Placed>(op);
  return placed && !placed.getContiguousFactors().empty();
}

Sharding Partitioner::apply(const std::optional<Choice> &choice,
                            const FactorRule::Dims &dims) {
  Sharding sharding = Sharding::whole(dims.size());
  if (choice)
    if (auto dim = FactorRule::findDim(dims, choice->factor))
      sharding.dims[*dim] = choice->cut;
  return sharding;
}

// The local shard of each operand, with padding that a reduction does not see.
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
    // Integer operands are ids; mask padding to row 0, since other ids may not
    // exist.
    bool isId = !isa<FloatType>(type.getElementType());
    if (isId && !looksUpRows(op))
      continue;
    for (auto [dim, cut] : llvm::enumerate(wanted.dims))
      if (cut.isPadded(type.getDimSize(dim), mesh) &&
          (isId || rule.isReduced(dims[dim])) &&
          !rule.mustBeContiguous[dims[dim]] &&
          (isMax || !hasZeroPadding(operand, dim, cut)))
        locals.back() = resharder.maskPadding(locals.back(), dim,
                                              type.getDimSize(dim), cut, fill);
  }
  return locals;
}

// Partial over the axes of partial operands, over those of a factor that a
// result lacks, and over the replicas if it lacks the batch.
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

// A choice, by the letters of the op.
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
    return partitioner.getFirstIndex(getSize(letter), getCut(letter),
                                     op->getLoc());
  }

  Value getNumbers(char letter) override {
    return partitioner.getGlobalIndices(getSize(letter), getCut(letter),
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
  SmallVector<Axes> kept = keepPartial(op, choice);
  Operation *copy = builder.clone(*op);
  builder.setInsertionPoint(copy);
  copy->setOperands(cutOperands(op, rule, choice, kept));
  SmallVector<Sharding> shardings = inferResults(op, rule, choice, kept);
  if (auto placed = dyn_cast<Placed>(copy)) {
    ChosenPlace place(*this, op, rule, choice);
    placed.place(builder, place);
  }
  builder.setInsertionPointAfter(copy);
  for (auto [full, local, sharding] :
       llvm::zip_equal(op->getResults(), copy->getResults(), shardings)) {
    local.setType(sharding.localBox(tensorType(full), mesh));
    Value value = local;
    keepUnrounded(local, sharding);
    if (rule.reduction == Reduction::max && !sharding.partial.empty()) {
      value = resharder.allReduce(local, sharding.partial, Combine::max);
      sharding.partial.clear();
    }
    settle(full, value, sharding);
  }
  return success();
}

} // namespace kiln::shard
