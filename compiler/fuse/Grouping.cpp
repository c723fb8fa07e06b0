// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every op starts alone; from the last op to the first, each joins the kernels
// that read it while they can share one nest of loops (KernelDomain) and no
// cycle arises (AcyclicOrder). Joining readers rather than writers computes a
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

static bool isWithoutReduction(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return structured && structured.getReduction() == Reduction::none;
}

Grouping::Grouping(Block &block, const FusionLimits &limits, OpFactTable &facts)
    : block(block), limits(limits), facts(facts) {
  for (BlockArgument argument : block.getArguments())
    values.push_back(argument);
  for (Operation &op : block.without_terminator()) {
    groups.push_back(std::make_unique<OpGroup>());
    OpGroup &group = *groups.back();
    const OpFacts &known = facts.get(&op);
    group.ops = {&op};
    group.isOpen = isFusing() && known.isFusable;
    group.index = group.last = groups.size() - 1;
    group.isScalar = known.isScalar;
    group.isOnlyExpanding = known.isExpanding;
    group.hasUnusualRows = known.hasUnusualRows;
    group.largest = known.largest;
    group.uniformShape = known.uniformShape;
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
Grouping::Groups Grouping::findReaders(OpGroup *group) {
  llvm::SmallSetVector<OpGroup *, 4> readers;
  for (Operation *op : group->ops) {
    for (Operation *user : op->getUsers())
      if (OpGroup *reader = getGroup(user); reader && reader != group)
        readers.insert(reader);
    if (Operation *next = nextCollective.lookup(op))
      readers.insert(getGroup(next));
  }
  return Groups(readers.begin(), readers.end());
}

// Ops on scalars stay among themselves: a kernel over a large tensor that also
// made a scalar for others would put itself before all of them. Constants are
// copied to their reader anyway.
static bool mixesScalars(OpGroup *writer, OpGroup *reader) {
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

// All that reads or computes a value of the group is worth another try. While
// every op is tried for the first time, groups still grow: then this is done
// once for each, at the end.
void Grouping::markNeighbours(OpGroup *group) {
  if (isFirstTry) {
    changedGroups.insert(group);
    return;
  }
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

// The group that both have become, or null.
OpGroup *Grouping::tryJoin(OpGroup *writer, OpGroup *reader) {
  if (writer == reader || !writer->isOpen || !reader->isOpen)
    return nullptr;
  if ((writer->hasUnusualRows || reader->hasUnusualRows) && !joinsUnusual)
    return nullptr;
  std::pair key{std::pair(writer, writer->joins),
                std::pair(reader, reader->joins)};
  if (refused.contains(key))
    return nullptr;
  if (!canJoin(writer, reader)) {
    refused.insert(key);
    return nullptr;
  }
  bool isWriterLarger = writer->ops.size() > reader->ops.size();
  OpGroup *kept = isWriterLarger ? writer : reader,
          *taken = isWriterLarger ? reader : writer;
  if (!order->merge(kept->index, taken->index)) {
    refused.insert(key);
    return nullptr;
  }
  for (Operation *op : taken->ops)
    groupOf[op] = kept;
  kept->ops = merge(kept->ops, taken->ops);
  kept->last = std::max(kept->last, taken->last);
  kept->isScalar &= taken->isScalar;
  kept->isOnlyExpanding &= taken->isOnlyExpanding;
  kept->hasUnusualRows |= taken->hasUnusualRows;
  kept->largest = std::max(kept->largest, taken->largest);
  if (!kept->uniformShape || !taken->uniformShape)
    kept->uniformShape.reset();
  else if (kept->uniformShape->empty())
    kept->uniformShape = taken->uniformShape;
  ++kept->joins;
  taken->ops.clear();
  markNeighbours(kept);
  return kept;
}

// Whether ops that compute each element by itself have the same loops without
// question. The value that two large groups have in common is as large as they
// are; what scalars have in common relates no dimensions.
static bool haveSameLoops(OpGroup *writer, OpGroup *reader) {
  if (!writer->uniformShape || !reader->uniformShape || reader->isScalar)
    return false;
  bool isConstant = writer->isOnlyExpanding && writer->uniformShape->empty();
  return isConstant ||
         (!writer->isScalar && *writer->uniformShape == *reader->uniformShape);
}

// Two lists that differ and have the same hash would at worst make a kernel
// that the backend refuses.
bool Grouping::canShareLoops(OpGroup *writer, OpGroup *reader) {
  if (haveSameLoops(writer, reader))
    return true;
  SmallVector<Operation *> ops = merge(writer->ops, reader->ops);
  auto [slot, isNew] = sharing.try_emplace(hashStructure(ops));
  if (isNew)
    slot->second = KernelDomain::analyse(ops).has_value();
  return slot->second;
}

bool Grouping::canJoin(OpGroup *writer, OpGroup *reader) {
  return writer->ops.size() + reader->ops.size() <= limits.operations &&
         !mixesScalars(writer, reader) &&
         !reader->isOnlyExpanding && // Its result would be stored.
         canShareLoops(writer, reader);
}

void Grouping::fuseAll() {
  if (!isFusing())
    return;
  SmallVector<SmallVector<unsigned, 4>> readers(groups.size());
  for (auto &group : groups)
    for (OpGroup *reader : findReaders(group.get()))
      readers[group->index].push_back(reader->index);
  order = std::make_unique<AcyclicOrder>(readers);
  SmallVector<Operation *> ops;
  for (auto &group : groups)
    ops.push_back(group->ops.front());
  for (auto [number, value] : llvm::enumerate(values))
    valueNumbers[value] = number;
  changedOps.resize(ops.size(), true);
  changedValues.resize(values.size(), true);
  isFirstTry = true;
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
    isFirstTry = false;
    for (OpGroup *group : changedGroups)
      markNeighbours(group);
    changedGroups.clear();
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
  llvm::SmallSetVector<OpGroup *, 4> found;
  for (Operation *user : value.getUsers())
    if (OpGroup *reader = getGroup(user); reader && reader->isOpen)
      if (countElements(value) == reader->largest)
        found.insert(reader);
  SmallVector<OpGroup *> readers = found.takeVector();
  bool hasJoined = false;
  for (size_t index = 1; index < readers.size(); ++index)
    if (OpGroup *both = tryJoin(readers[index - 1], readers[index])) {
      readers[index - 1] = both;
      readers.erase(readers.begin() + index);
      --index;
      hasJoined = true;
    }
  return hasJoined;
}

bool Grouping::joinReaders(Operation *op) {
  if (!getGroup(op)->isOpen)
    return false;
  llvm::SmallSetVector<OpGroup *, 4> readers;
  for (Operation *user : op->getUsers())
    if (OpGroup *reader = getGroup(user); reader && reader->isOpen)
      readers.insert(reader);
  SmallVector<OpGroup *> latestFirst = readers.takeVector();
  llvm::sort(latestFirst,
             [](OpGroup *a, OpGroup *b) { return a->last > b->last; });
  bool hasJoined = false;
  for (OpGroup *reader : latestFirst)
    hasJoined |= tryJoin(getGroup(op), reader) != nullptr;
  return hasJoined;
}

// Whether the group reads a value, or all that it is made of: what expands is
// copied to each of its readers.
bool Grouping::reads(OpGroup *reader, Value value) {
  bool isRead = llvm::any_of(value.getUsers(), [&](Operation *user) {
    return getGroup(user) == reader;
  });
  Operation *maker = value.getDefiningOp();
  return isRead || (maker && facts.get(maker).isExpanding &&
                    llvm::all_of(maker->getOperands(), [&](Value operand) {
                      return reads(reader, operand);
                    }));
}

// Whether `reader` would read nothing more if it computed `op` itself.
bool Grouping::canCopy(Operation *op, OpGroup *reader) {
  if (!reader || !reader->isOpen || reader->ops.size() >= limits.operations)
    return false;
  bool readsAll = llvm::all_of(
      op->getOperands(), [&](Value operand) { return reads(reader, operand); });
  return readsAll && KernelDomain::analyse(merge({op}, reader->ops));
}

void Grouping::copyTo(OpGroup *reader, Operation *op) {
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
bool Grouping::canLose(OpGroup *group, Operation *op) {
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
    OpGroup *writer = getGroup(op);
    llvm::SmallSetVector<OpGroup *, 4> readers;
    for (Operation *user : op->getUsers())
      if (getGroup(user) != writer)
        readers.insert(getGroup(user));
    bool isStored = llvm::any_of(
        readers, [&](OpGroup *reader) { return !canCopy(op, reader); });
    if (isStored)
      continue; // Then it may as well be read.
    if (!canLose(writer, op))
      continue;
    for (OpGroup *reader : readers)
      copyTo(reader, op);
    if (op->use_empty()) {
      llvm::erase(writer->ops, op);
      groupOf.erase(op);
      op->erase();
    }
  }
}

} // namespace kiln
