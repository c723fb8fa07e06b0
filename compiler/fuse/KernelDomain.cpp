// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/fuse/KernelDomain.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace kiln {

// A contraction is structured too, but a loop nest of its own serves it better.
// A permutation would need two orders of the same loops.
bool isFusable(Operation *op) {
  if (auto indexed = dyn_cast<RowIndexed>(op))
    return indexed.isFusable();
  auto structured = dyn_cast<Structured>(op);
  if (!structured)
    return false;
  bool isContraction =
      structured.getReduction() != Reduction::none && op->getNumOperands() > 1;
  if (isContraction)
    return false;
  SmallVector<AffineMap> maps = structured.getLoopMaps();
  auto widest = llvm::max_element(maps, [](AffineMap a, AffineMap b) {
    return a.getNumResults() < b.getNumResults();
  });
  SmallVector<unsigned> order(widest->getNumDims());
  for (unsigned position = 0; position < widest->getNumResults(); ++position)
    order[widest->getDimPosition(position)] = position;
  return llvm::all_of(maps, [&](AffineMap map) {
    for (unsigned position = 1; position < map.getNumResults(); ++position)
      if (order[map.getDimPosition(position - 1)] >
          order[map.getDimPosition(position)])
        return false;
    return true;
  });
}

bool needsKernel(Operation *op) {
  return isMemoryEffectFree(op) && !op->hasTrait<OpTrait::IsTerminator>() &&
         !isa<Collective>(op) && !isMovement(op, Movement::view) &&
         !isMovement(op, Movement::transfer);
}

// Operands that are indexed by the loops; rows of a table are looked up.
static ValueRange getLoopOperands(Operation *op) {
  auto indexed = dyn_cast<RowIndexed>(op);
  return indexed ? indexed.getIndexedOperands() : op->getOperands();
}

std::optional<KernelDomain> KernelDomain::analyse(ArrayRef<Operation *> ops) {
  KernelDomain domain;
  if (!domain.assignDims(ops) || !domain.orderDims(ops) ||
      !domain.chooseSplit(ops))
    return std::nullopt;
  domain.assignPasses(ops);
  return domain;
}

// Two dimensions of two values are one loop if an op indexes both by the same
// loop.
bool KernelDomain::assignDims(ArrayRef<Operation *> ops) {
  llvm::EquivalenceClasses<unsigned> classes;
  DenseMap<Value, unsigned> firstIds;
  SmallVector<int64_t> idSizes;
  SmallVector<Value> values;
  auto idOf = [&](Value value, unsigned position) {
    auto [slot, isNew] = firstIds.try_emplace(value, idSizes.size());
    if (isNew) {
      values.push_back(value);
      for (int64_t size : cast<RankedTensorType>(value.getType()).getShape()) {
        classes.insert(idSizes.size());
        idSizes.push_back(size);
      }
    }
    return slot->second + position;
  };
  for (Operation *op : ops) {
    for (Value operand : getLoopOperands(op))
      idOf(operand, 0);
    idOf(op->getResult(0), 0);
    if (auto indexed = dyn_cast<RowIndexed>(op)) {
      for (Value operand : indexed.getIndexedOperands())
        for (int64_t position = 0;
             position < cast<RankedTensorType>(operand.getType()).getRank();
             ++position)
          classes.unionSets(idOf(operand, position),
                            idOf(op->getResult(0), position));
      continue;
    }
    auto structured = cast<Structured>(op);
    SmallVector<AffineMap> maps = structured.getLoopMaps();
    SmallVector<std::optional<unsigned>> owner(maps.front().getNumDims());
    for (auto [index, map] : llvm::enumerate(maps)) {
      Value value = index < op->getNumOperands() ? op->getOperand(index)
                                                 : op->getResult(0);
      for (unsigned position = 0; position < map.getNumResults(); ++position) {
        auto &slot = owner[map.getDimPosition(position)];
        if (slot)
          classes.unionSets(*slot, idOf(value, position));
        slot = idOf(value, position);
      }
    }
  }
  DenseMap<unsigned, unsigned> numbers;
  for (Value value : values) {
    unsigned first = firstIds[value];
    SmallVector<unsigned> &list = dims[value];
    int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
    for (int64_t position = 0; position < rank; ++position) {
      unsigned leader = classes.getLeaderValue(first + position);
      auto [number, isNew] = numbers.try_emplace(leader, sizes.size());
      if (isNew)
        sizes.push_back(idSizes[leader]);
      if (llvm::is_contained(list, number->second))
        return false; // One value would walk the same loop twice.
      list.push_back(number->second);
    }
  }
  return true;
}

// The order is that of a value with every dimension; all values must agree with
// it.
bool KernelDomain::orderDims(ArrayRef<Operation *>) {
  const SmallVector<unsigned> *whole = nullptr;
  for (auto &entry : dims)
    if (entry.second.size() == sizes.size())
      whole = &entry.second;
  if (!whole)
    return false;
  SmallVector<unsigned> rank(sizes.size());
  SmallVector<int64_t> ordered(sizes.size());
  for (auto [position, dim] : llvm::enumerate(*whole)) {
    rank[dim] = position;
    ordered[position] = sizes[dim];
  }
  for (auto &entry : dims) {
    for (unsigned &dim : entry.second)
      dim = rank[dim];
    if (!llvm::is_sorted(entry.second))
      return false;
  }
  sizes = ordered;
  return true;
}

static SmallVector<unsigned> getLostDims(ArrayRef<unsigned> from,
                                         ArrayRef<unsigned> to) {
  SmallVector<unsigned> lost;
  for (unsigned dim : from)
    if (!llvm::is_contained(to, dim))
      lost.push_back(dim);
  return lost;
}

static bool isReduction(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return structured && structured.getReduction() != Reduction::none;
}

bool KernelDomain::isValidSplit(unsigned candidate,
                                ArrayRef<Operation *> ops) const {
  unsigned row = sizes.size() - candidate;
  for (auto &entry : dims) {
    unsigned inRow = llvm::count_if(
        entry.second, [&](unsigned dim) { return dim >= candidate; });
    if (inRow != 0 && inRow != row)
      return false;
  }
  for (Operation *op : ops) {
    if (isa<RowIndexed>(op) &&
        (row != 1 || getDims(op->getResult(0)).back() != candidate))
      return false;
    if (!isReduction(op))
      continue;
    SmallVector<unsigned> lost =
        getLostDims(getDims(op->getOperand(0)), getDims(op->getResult(0)));
    // Otherwise several rows would reduce the same elements.
    if (lost.empty() || !differsByRow(op->getOperand(0), candidate))
      return false;
  }
  return findGroupDims(candidate, ops).has_value();
}

bool KernelDomain::differsByRow(Value value, unsigned candidate) const {
  ArrayRef<unsigned> list = getDims(value);
  for (unsigned dim = 0; dim < candidate; ++dim)
    if (sizes[dim] != 1 && !llvm::is_contained(list, dim))
      return false;
  return true;
}

bool KernelDomain::losesRows(Operation *op, unsigned candidate) const {
  if (!isReduction(op))
    return false;
  SmallVector<unsigned> lost =
      getLostDims(getDims(op->getOperand(0)), getDims(op->getResult(0)));
  return llvm::any_of(lost, [&](unsigned dim) { return dim < candidate; });
}

// How many leading dimensions the reductions over rows keep: all of them the
// same number, and nothing behind that. None if they differ.
std::optional<unsigned>
KernelDomain::findGroupDims(unsigned candidate,
                            ArrayRef<Operation *> ops) const {
  std::optional<unsigned> kept;
  for (Operation *op : ops) {
    if (!isReduction(op))
      continue;
    SmallVector<unsigned> lost =
        getLostDims(getDims(op->getOperand(0)), getDims(op->getResult(0)));
    llvm::erase_if(lost, [&](unsigned dim) { return dim >= candidate; });
    if (lost.empty())
      continue;
    if (lost.back() != candidate - 1 ||
        lost.size() != candidate - lost.front() ||
        (kept && *kept != lost.front()))
      return std::nullopt;
    kept = lost.front();
  }
  return kept.value_or(0);
}

// A result that needs all rows cannot be used before they are done. Beside a
// row that is done by chunks, reductions over the one row would be of another
// kind.
bool KernelDomain::hasOuterConflict(ArrayRef<Operation *> ops) const {
  llvm::SmallPtrSet<Operation *, 32> members(ops.begin(), ops.end());
  bool isLong = findLongRow(ops);
  for (Operation *op : ops) {
    if (!isOuterReduction(op))
      continue;
    if (isLong)
      return true;
    for (Operation *user : op->getResult(0).getUsers())
      if (members.contains(user))
        return true;
  }
  return hasPartialsOfTwoTypes(ops);
}

// Partial results share one scratch buffer, so they have one type.
bool KernelDomain::hasPartialsOfTwoTypes(ArrayRef<Operation *> ops) const {
  bool isLong = findLongRow(ops);
  Type element;
  for (Operation *op : ops) {
    if (!isOuterReduction(op) && !(isLong && isRowReduction(op)))
      continue;
    Type found =
        cast<RankedTensorType>(op->getResult(0).getType()).getElementType();
    if (element && element != found)
      return true;
    element = found;
  }
  return false;
}

// Shorter rows are reduced sooner than workers meet.
constexpr int64_t kColumnsPerChunk = 16384, kMostChunks = 256;

bool KernelDomain::findLongRow(ArrayRef<Operation *> ops) const {
  return getRows() == 1 && getColumns() >= 2 * kColumnsPerChunk &&
         llvm::any_of(ops, [&](Operation *op) { return isRowReduction(op); });
}

int64_t KernelDomain::getColumnsPerChunk() const {
  constexpr int64_t kVectors = 1024;
  return std::max<int64_t>(
      kColumnsPerChunk,
      llvm::alignTo(llvm::divideCeil(getColumns(), kMostChunks), kVectors));
}

// The longest row that every value agrees with; but where something is summed
// over rows, enough rows to share the work.
bool KernelDomain::chooseSplit(ArrayRef<Operation *> ops) {
  constexpr int64_t kRowsToShare = 8;
  bool hasReduction = llvm::any_of(ops, isReduction);
  std::optional<unsigned> best;
  int64_t rows = 1;
  for (unsigned candidate = 0; candidate <= sizes.size(); ++candidate) {
    if (candidate > 0)
      rows *= sizes[candidate - 1];
    if (!isValidSplit(candidate, ops))
      continue;
    split = candidate;
    if (hasOuterConflict(ops))
      continue;
    bool isRowEmpty = candidate == sizes.size() && !sizes.empty();
    if (best && isRowEmpty)
      continue; // Scalars instead of vectors: only if there is no other way.
    if (!best)
      best = candidate;
    if (!hasReduction)
      break;
    if (rows >= kRowsToShare) {
      best = candidate;
      break;
    }
  }
  if (!best)
    return false;
  split = *best;
  groupDims = *findGroupDims(split, ops);
  hasLongRow = findLongRow(ops);
  return true;
}

int64_t KernelDomain::getGroups() const {
  int64_t groups = 1;
  for (int64_t size : ArrayRef(sizes).take_front(groupDims))
    groups *= size;
  return groups;
}

int64_t KernelDomain::getRows() const {
  int64_t rows = 1;
  for (int64_t size : ArrayRef(sizes).take_front(split))
    rows *= size;
  return rows;
}

int64_t KernelDomain::getColumns() const {
  int64_t columns = 1;
  for (int64_t size : ArrayRef(sizes).drop_front(split))
    columns *= size;
  return columns;
}

bool KernelDomain::isPoint(Value value) const {
  ArrayRef<unsigned> list = getDims(value);
  return !list.empty() && list.back() >= split;
}

bool KernelDomain::isRowReduction(Operation *op) const {
  return isReduction(op) && !isOuterReduction(op);
}

bool KernelDomain::isOuterReduction(Operation *op) const {
  return losesRows(op, split);
}

void KernelDomain::assignPasses(ArrayRef<Operation *> ops) {
  for (Operation *op : ops) {
    unsigned pass = 0;
    for (Value operand : op->getOperands())
      pass = std::max(pass, passes.lookup(operand));
    if (isRowReduction(op) && isPoint(op->getOperand(0)))
      ++pass; // Known after a pass over the row.
    passes[op->getResult(0)] = pass;
  }
}

unsigned KernelDomain::getPassCount() const {
  unsigned last = 0;
  for (auto &entry : passes)
    last = std::max(last, entry.second);
  return last + 1;
}

} // namespace kiln
