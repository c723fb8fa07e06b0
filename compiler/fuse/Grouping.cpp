// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every op starts alone; from the last op to the first, each joins the kernels
// that read it while they can share one nest of loops (KernelDomain) and no
// cycle arises (GroupOrder). Joining readers rather than writers computes a
// value where it is needed: the forward pass neither computes nor keeps values
// that only the backward pass reads. Two groups may share their loops only once
// an op that relates them has joined, so ops whose groups have changed are
// tried again until nothing changes.
#include "compiler/fuse/Grouping.h"
#include "compiler/fuse/KernelDomain.h"

using namespace mlir;

namespace kiln {

static int64_t countElements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

bool isExpanding(Operation *op) {
  if (!isFusable(op) || isMovement(op, Movement::lookup))
    return false;
  int64_t read = 0;
  for (Value operand : op->getOperands())
    read += getByteSize(operand.getType());
  return getByteSize(op->getResult(0).getType()) > read;
}

static bool isWithoutReduction(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return structured && structured.getReduction() == Reduction::none;
}

// Whether it neither makes nor reads more than scalars.
static bool isScalar(Operation *op) {
  auto isOne = [](Value value) { return countElements(value) == 1; };
  return op->getNumResults() == 1 && isOne(op->getResult(0)) &&
         llvm::all_of(op->getOperands(), isOne);
}

static int64_t countLargest(Operation *op) {
  int64_t largest = 0;
  for (Value value : op->getOperands())
    largest = std::max(largest, countElements(value));
  for (Value value : op->getResults())
    largest = std::max(largest, countElements(value));
  return largest;
}

// A reduction that loses leading dimensions and keeps more than the last one,
// such as "bsd->sd", wants rows of its own kind. It joins others last, lest it
// keep them from each other.
static bool hasUnusualRows(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  if (!structured || structured.getReduction() == Reduction::none)
    return false;
  AffineMap from = structured.getLoopMaps().front(),
            to = structured.getLoopMaps().back();
  unsigned rank = from.getNumResults(), kept = to.getNumResults();
  bool keepsLast =
      kept > 0 && to.getDimPosition(kept - 1) == from.getDimPosition(rank - 1);
  for (unsigned position = 0; position + 1 < kept; ++position)
    keepsLast &= to.getDimPosition(position) == from.getDimPosition(position);
  bool losesLast =
      kept + 1 == rank && (kept == 0 || to.getDimPosition(kept - 1) ==
                                            from.getDimPosition(rank - 2));
  return kept > 0 && !keepsLast && !losesLast;
}

Grouping::Grouping(Block &block, const FusionLimits &limits)
    : block(block), limits(limits) {
  for (BlockArgument argument : block.getArguments())
    values.push_back(argument);
  for (Operation &op : block.without_terminator()) {
    groups.push_back(std::make_unique<Group>());
    Group &group = *groups.back();
    group.ops = {&op};
    group.isOpen = isFusing() && needsKernel(&op) && isFusable(&op);
    group.index = group.last = groups.size() - 1;
    group.isScalar = isScalar(&op);
    group.isOnlyExpanding = isExpanding(&op);
    group.hasUnusualRows = group.isOpen && hasUnusualRows(&op);
    group.largest = countLargest(&op);
    groupOf[&op] = &group;
    positions[&op] = group.index;
    llvm::append_range(values, op.getResults());
  }
  Operation *previous = nullptr;
  for (Operation &op : block)
    if (isExchange(&op)) {
      if (previous)
        nextCollective[previous] = &op;
      previous = &op;
    }
}

// The groups that must come after this one.
Grouping::Groups Grouping::findReaders(Group *group) {
  llvm::SmallSetVector<Group *, 4> readers;
  for (Operation *op : group->ops) {
    for (Operation *user : op->getUsers())
      if (Group *reader = getGroup(user); reader && reader != group)
        readers.insert(reader);
    if (Operation *next = nextCollective.lookup(op))
      readers.insert(getGroup(next));
  }
  return Groups(readers.begin(), readers.end());
}

// Ops on scalars stay among themselves: a kernel over a large tensor that also
// made a scalar for others would put itself before all of them. Constants are
// copied to their reader anyway.
static bool mixesScalars(Group *writer, Group *reader) {
  return !writer->isOnlyExpanding && writer->isScalar != reader->isScalar;
}

SmallVector<Operation *> Grouping::merge(ArrayRef<Operation *> some,
                                         ArrayRef<Operation *> others) {
  SmallVector<Operation *> together(some.size() + others.size());
  std::merge(some.begin(), some.end(), others.begin(), others.end(),
             together.begin(), [&](Operation *a, Operation *b) {
               return positions.lookup(a) < positions.lookup(b);
             });
  return together;
}

// All that reads or computes a value of the group is worth another try.
void Grouping::markNeighbours(Group *group) {
  for (Operation *op : group->ops) {
    changedOps.set(positions.lookup(op));
    for (Value result : op->getResults())
      changedValues.set(valueNumbers.lookup(result));
    for (Value operand : op->getOperands()) {
      changedValues.set(valueNumbers.lookup(operand));
      if (Operation *maker = operand.getDefiningOp())
        changedOps.set(positions.lookup(maker));
    }
  }
}

bool Grouping::tryJoin(Group *writer, Group *reader) {
  if (writer == reader || !writer->isOpen || !reader->isOpen)
    return false;
  if ((writer->hasUnusualRows || reader->hasUnusualRows) && !joinsUnusual)
    return false;
  std::pair key{std::pair(writer, writer->joins),
                std::pair(reader, reader->joins)};
  if (refused.contains(key))
    return false;
  if (!canJoin(writer, reader)) {
    refused.insert(key);
    return false;
  }
  for (Operation *op : reader->ops)
    groupOf[op] = writer;
  writer->ops = merge(writer->ops, reader->ops);
  writer->last = std::max(writer->last, reader->last);
  writer->isScalar &= reader->isScalar;
  writer->isOnlyExpanding &= reader->isOnlyExpanding;
  writer->hasUnusualRows |= reader->hasUnusualRows;
  writer->largest = std::max(writer->largest, reader->largest);
  ++writer->joins;
  reader->ops.clear();
  markNeighbours(writer);
  return true;
}

// Of the ops with their types, and of which of them reads which.
static size_t hashStructure(ArrayRef<Operation *> ops) {
  llvm::SmallDenseMap<Value, unsigned, 32> numbers;
  llvm::hash_code hash(ops.size());
  for (Operation *op : ops) {
    hash = llvm::hash_combine(hash, op->getName().getAsOpaquePointer(),
                              op->hashProperties(),
                              op->getResult(0).getType().getAsOpaquePointer());
    for (Value operand : op->getOperands()) {
      unsigned number =
          numbers.try_emplace(operand, numbers.size()).first->second;
      hash = llvm::hash_combine(hash, number,
                                operand.getType().getAsOpaquePointer());
    }
    numbers.try_emplace(op->getResult(0), numbers.size());
  }
  return hash;
}

// Two lists that differ and have the same hash would at worst make a kernel
// that the backend refuses.
bool Grouping::canShareLoops(ArrayRef<Operation *> ops) {
  auto [slot, isNew] = sharing.try_emplace(hashStructure(ops));
  if (isNew)
    slot->second = KernelDomain::analyse(ops).has_value();
  return slot->second;
}

// Whether they can share loops and no cycle arises; then the order has them as
// one group.
bool Grouping::canJoin(Group *writer, Group *reader) {
  if (writer->ops.size() + reader->ops.size() > limits.operations ||
      mixesScalars(writer, reader))
    return false;
  if (reader->isOnlyExpanding)
    return false; // Its result would be stored.
  return canShareLoops(merge(writer->ops, reader->ops)) &&
         order->merge(writer->index, reader->index);
}

void Grouping::fuseAll() {
  if (!isFusing())
    return;
  SmallVector<SmallVector<unsigned, 4>> readers(groups.size());
  for (auto &group : groups)
    for (Group *reader : findReaders(group.get()))
      readers[group->index].push_back(reader->index);
  order = std::make_unique<GroupOrder>(readers);
  SmallVector<Operation *> ops;
  for (auto &group : groups)
    ops.push_back(group->ops.front());
  for (Value value : values)
    valueNumbers[value] = valueNumbers.size();
  changedOps.resize(ops.size(), true);
  changedValues.resize(values.size(), true);
  bool hasChanged = true;
  while (hasChanged || !joinsUnusual) {
    joinsUnusual = !hasChanged;
    hasChanged = false;
    if (joinsUnusual)
      for (auto &group : groups)
        if (group->hasUnusualRows)
          markNeighbours(group.get());
    for (int op = changedOps.find_last(); op >= 0;
         op = changedOps.find_prev(op)) {
      changedOps.reset(op);
      hasChanged |= joinReaders(ops[op]);
    }
    for (int value = changedValues.find_first(); value >= 0;
         value = changedValues.find_next(value)) {
      changedValues.reset(value);
      hasChanged |= joinSiblings(values[value]);
    }
  }
}

// Kernels that read the same large value read it once if they are one. A value
// smaller than all they compute is cheap to read twice, and would tie together
// kernels that share nothing else.
bool Grouping::joinSiblings(Value value) {
  if (countElements(value) <= 1)
    return false;
  llvm::SmallSetVector<Group *, 4> readers;
  for (Operation *user : value.getUsers())
    if (Group *reader = getGroup(user); reader && reader->isOpen)
      if (countElements(value) == reader->largest)
        readers.insert(reader);
  bool hasJoined = false;
  for (size_t index = 1; index < readers.size(); ++index)
    if (tryJoin(readers[index - 1], readers[index])) {
      readers.remove(readers[index]);
      --index;
      hasJoined = true;
    }
  return hasJoined;
}

bool Grouping::joinReaders(Operation *op) {
  if (!getGroup(op)->isOpen)
    return false;
  llvm::SmallSetVector<Group *, 4> readers;
  for (Operation *user : op->getUsers())
    if (Group *reader = getGroup(user); reader && reader->isOpen)
      readers.insert(reader);
  SmallVector<Group *> latestFirst = readers.takeVector();
  llvm::sort(latestFirst, [](Group *a, Group *b) { return a->last > b->last; });
  bool hasJoined = false;
  for (Group *reader : latestFirst)
    hasJoined |= tryJoin(getGroup(op), reader);
  return hasJoined;
}

// Whether `reader` would read nothing more if it computed `op` itself.
bool Grouping::canCopy(Operation *op, Group *reader) {
  if (!reader || !reader->isOpen || reader->ops.size() >= limits.operations)
    return false;
  bool readsAll = llvm::all_of(op->getOperands(), [&](Value operand) {
    return llvm::any_of(operand.getUsers(), [&](Operation *user) {
      return getGroup(user) == reader;
    });
  });
  return readsAll && KernelDomain::analyse(merge({op}, reader->ops));
}

void Grouping::copyTo(Group *reader, Operation *op) {
  OpBuilder builder(op);
  Operation *copy = builder.clone(*op);
  positions[copy] = positions[op];
  groupOf[copy] = reader;
  reader->ops = merge({copy}, reader->ops);
  op->getResult(0).replaceUsesWithIf(copy->getResult(0), [&](OpOperand &use) {
    return getGroup(use.getOwner()) == reader;
  });
}

// Whether the others can still share loops without `op`, if nothing of the
// group reads it: it may be what relates them.
bool Grouping::canLose(Group *group, Operation *op) {
  if (group->ops.size() == 1 ||
      llvm::any_of(op->getUsers(),
                   [&](Operation *user) { return getGroup(user) == group; }))
    return true;
  SmallVector<Operation *> others(group->ops);
  llvm::erase(others, op);
  return KernelDomain::analyse(others).has_value();
}

// From the last op to the first: the copy of one op may be what reads the next.
void Grouping::copyToReaders() {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    if (getGroup(&op)->isOpen && op.getNumResults() == 1 &&
        countElements(op.getResult(0)) > 1 && isWithoutReduction(&op))
      ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    Group *writer = getGroup(op);
    llvm::SmallSetVector<Group *, 4> readers;
    for (Operation *user : op->getUsers())
      if (getGroup(user) != writer)
        readers.insert(getGroup(user));
    bool isStored = llvm::any_of(
        readers, [&](Group *reader) { return !canCopy(op, reader); });
    if (isStored)
      continue; // Then it may as well be read.
    if (!canLose(writer, op))
      continue;
    for (Group *reader : readers)
      copyTo(reader, op);
    if (op->use_empty()) {
      llvm::erase(writer->ops, op);
      groupOf.erase(op);
      op->erase();
    }
  }
}

} // namespace kiln
