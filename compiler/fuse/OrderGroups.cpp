// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The order in which the kernels of a block run.
#include "compiler/fuse/Grouping.h"
#include "compiler/fuse/KernelDomain.h"

#include <queue>

using namespace mlir;

namespace kiln {

// Edges of the order: from the writer of a value to its readers, and if wanted
// from the readers of a variable to the group that computes its next value, so
// that it can be written in place.
SmallVector<Grouping::Groups> Grouping::findEdges(bool withVariables) {
  SmallVector<Groups> edges(groups.size());
  for (auto &group : groups)
    edges[group->index] = findReaders(group.get());
  if (!withVariables)
    return edges;
  llvm::StringMap<SmallVector<ReadOp>> reads;
  for (auto read : block.getOps<ReadOp>())
    reads[read.getVariable()].push_back(read);
  for (auto assign : block.getOps<AssignOp>()) {
    OpGroup *maker = getGroup(assign.getValue().getDefiningOp());
    for (ReadOp read : reads[assign.getVariable()])
      for (Operation *user : read->getUsers())
        if (OpGroup *reader = getGroup(user);
            maker && reader && reader != maker &&
            !llvm::is_contained(edges[reader->index], maker))
          edges[reader->index].push_back(maker);
  }
  return edges;
}

// Whether a group gives variables their next values.
static bool isUpdate(OpGroup *group) {
  return llvm::any_of(group->ops, [](Operation *op) {
    return llvm::any_of(op->getUsers(),
                        [](Operation *user) { return isa<AssignOp>(user); });
  });
}

// Whether only this group reads a value, be it through views.
bool Grouping::diesIn(OpGroup *group, Value value) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return isMovement(user, Movement::view) ? diesIn(group, user->getResult(0))
                                            : getGroup(user) == group;
  });
}

// Whether it rounds to 16 bits, such as gradients, and thereby stores less than
// it frees: values that other groups compute and nobody else reads. Variables
// stay anyway.
bool Grouping::roundsLast(OpGroup *group) {
  llvm::SmallPtrSet<Operation *, 4> seen;
  int64_t freed = 0, stored = 0;
  bool isRounding = false;
  for (Operation *op : group->ops) {
    isRounding |=
        isElementwise(op) && isNarrow(getElementTypeOrSelf(op->getResult(0)));
    for (Value operand : op->getOperands()) {
      while (isMovement(operand.getDefiningOp(), Movement::view))
        operand = operand.getDefiningOp()->getOperand(0);
      Operation *maker = operand.getDefiningOp();
      if (maker && needsKernel(maker) && getGroup(maker) != group &&
          seen.insert(maker).second && diesIn(group, operand))
        freed += getByteSize(operand.getType());
    }
    for (Value result : op->getResults())
      if (!diesIn(group, result))
        stored += getByteSize(result.getType());
  }
  return isRounding && stored < freed;
}

// Whether it needs no memory of its own, or frees some. Collectives keep their
// place in the program, which is chosen for them.
bool Grouping::isEager(OpGroup *group) {
  Operation *first = group->ops.front();
  if (isa<Collective>(first))
    return false;
  // The host takes one tensor after the other.
  if (auto transfer = dyn_cast<TransferOp>(first))
    return transfer.getMemory() == Memory::device || group->isScalar;
  return !needsKernel(first) || isUpdate(group) || group->isScalar ||
         roundsLast(group);
}

// Follows the program, except that updates of variables, the scalars that they
// wait for, and roundings run as soon as they can: then a gradient dies where
// it is computed, while it is still in the cache.
SmallVector<OpGroup *> Grouping::sort(ArrayRef<Groups> edges) {
  SmallVector<unsigned> missing(groups.size());
  for (const Groups &readers : edges)
    for (OpGroup *later : readers)
      ++missing[later->index];
  // Whether it can wait, its last op, its index.
  using Entry = std::tuple<bool, unsigned, unsigned>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  auto push = [&](OpGroup *group) {
    ready.push({!isEager(group), group->last, group->index});
  };
  for (auto &group : groups)
    if (!group->ops.empty() && missing[group->index] == 0)
      push(group.get());
  SmallVector<OpGroup *> sorted;
  while (!ready.empty()) {
    OpGroup *group = groups[std::get<2>(ready.top())].get();
    ready.pop();
    sorted.push_back(group);
    for (OpGroup *later : edges[group->index])
      if (--missing[later->index] == 0)
        push(later);
  }
  return sorted;
}

// Two variables that take each other's values have no order in which both are
// written in place; one is then copied.
SmallVector<OpGroup *> Grouping::getOrder() {
  size_t live =
      llvm::count_if(groups, [](auto &group) { return !group->ops.empty(); });
  SmallVector<OpGroup *> sorted = sort(findEdges(/*withVariables=*/true));
  return sorted.size() == live ? sorted
                               : sort(findEdges(/*withVariables=*/false));
}

} // namespace kiln
