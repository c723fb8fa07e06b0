// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups ops into kernels. Every op starts alone; from the last op to the first, each joins the kernels that
// read it while they can share one nest of loops (KernelDomain) and no cycle arises. Joining readers rather than writers
// computes a value where it is needed: what only the backward pass needs is not made and kept by the forward
// pass. Two groups may share their loops only once an op that relates them has joined, so the walk is repeated
// until nothing changes. An op whose result is larger than all it reads (a broadcast, a constant) is copied to every reader, so it is
// never stored.
#include "compiler/fuse/KernelDomain.h"
#include "compiler/pipeline/Passes.h"

#include "mlir/IR/IRMapping.h"

#include <queue>

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_FUSEKERNELS
#include "compiler/pipeline/Passes.h.inc"

// Ops that cost nothing at run time or tie the block to the world outside.
static bool isLaunched(Operation *op) {
  return !isa<ReadOp, AssignOp, OutputOp, YieldOp, ReshapeOp>(op);
}

static int64_t countElements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

static bool isExpanding(Operation *op) {
  if (!isFusable(op) || isa<EmbeddingOp>(op))
    return false;
  int64_t read = 0;
  for (Value operand : op->getOperands())
    read += countElements(operand);
  return countElements(op->getResult(0)) > read;
}

static void copyExpandingOpsToReaders(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    if (!isLaunched(op) || !isExpanding(op))
      continue;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : op->getUses())
      uses.push_back(&use);
    for (OpOperand *use : ArrayRef(uses).drop_front(uses.empty() ? 0 : 1)) {
      OpBuilder builder(use->getOwner());
      use->set(builder.clone(*op)->getResult(0));
    }
    if (uses.empty())
      op->erase();
    else
      op->moveBefore(uses.front()->getOwner());
  }
}

namespace {

/// A set of ops that become one kernel, and the groups that read what it makes.
struct Group {
  SmallVector<Operation *> ops; // In program order.
  bool isOpen = true;           // Whether others may join.
  unsigned first = 0, last = 0; // Positions in the block.
};

class Grouping {
public:
  Grouping(Block &block, bool fuse);
  void fuseAll();
  /// Groups in an order that respects their dependences.
  SmallVector<Group *> getOrder();

private:
  bool joinReaders(Operation *op);
  bool tryJoin(Group *writer, Group *reader);
  bool hasDetour(Group *from, Group *to);
  void visitReaders(Group *group, llvm::function_ref<void(Group *)> visit);

  Block &block;
  bool fuse;
  std::vector<std::unique_ptr<Group>> groups;
  DenseMap<Operation *, Group *> groupOf;
  DenseMap<Operation *, unsigned> positions;
};

} // namespace

Grouping::Grouping(Block &block, bool fuse) : block(block), fuse(fuse) {
  unsigned position = 0;
  for (Operation &op : block.without_terminator()) {
    groups.push_back(std::make_unique<Group>());
    Group &group = *groups.back();
    group.ops = {&op};
    group.isOpen = fuse && isLaunched(&op) && isFusable(&op);
    group.first = group.last = position;
    groupOf[&op] = &group;
    positions[&op] = position++;
  }
}

void Grouping::visitReaders(Group *group, llvm::function_ref<void(Group *)> visit) {
  for (Operation *op : group->ops) {
    for (Operation *user : op->getUsers())
      if (Group *reader = groupOf.lookup(user); reader && reader != group)
        visit(reader);
  }
}

// Whether `to` depends on `from` through another group: fusing the two would close a cycle.
bool Grouping::hasDetour(Group *from, Group *to) {
  SmallVector<Group *> work;
  llvm::SmallPtrSet<Group *, 16> seen;
  visitReaders(from, [&](Group *reader) {
    if (reader != to && reader->first <= to->last && seen.insert(reader).second)
      work.push_back(reader);
  });
  while (!work.empty()) {
    Group *group = work.pop_back_val();
    if (group == to)
      return true;
    visitReaders(group, [&](Group *reader) {
      if (reader->first <= to->last && seen.insert(reader).second)
        work.push_back(reader);
    });
  }
  return false;
}

static bool isScalar(Group *group) {
  return llvm::all_of(group->ops, [](Operation *op) { return countElements(op->getResult(0)) == 1; });
}

// Ops on scalars stay among themselves: a kernel over a large tensor that also made a scalar for others would
// put itself before all of them. Constants are copied to their reader anyway.
static bool mixesScalars(Group *writer, Group *reader) {
  bool isConstant = llvm::all_of(writer->ops, [](Operation *op) { return isExpanding(op); });
  return !isConstant && isScalar(writer) != isScalar(reader);
}

bool Grouping::tryJoin(Group *writer, Group *reader) {
  constexpr size_t kMostOps = 160; // Bounds registers and compile time.
  if (writer == reader || !writer->isOpen || !reader->isOpen ||
      writer->ops.size() + reader->ops.size() > kMostOps || mixesScalars(writer, reader))
    return false;
  SmallVector<Operation *> together = writer->ops;
  together.append(reader->ops);
  llvm::sort(together, [&](Operation *a, Operation *b) { return positions[a] < positions[b]; });
  if (!KernelDomain::analyse(together) || hasDetour(writer, reader) || hasDetour(reader, writer))
    return false;
  for (Operation *op : reader->ops)
    groupOf[op] = writer;
  writer->ops = together;
  writer->first = std::min(writer->first, reader->first);
  writer->last = std::max(writer->last, reader->last);
  reader->ops.clear();
  return true;
}

void Grouping::fuseAll() {
  if (!fuse)
    return;
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  bool hasChanged = true;
  while (hasChanged) {
    hasChanged = false;
    for (Operation *op : llvm::reverse(ops))
      hasChanged |= joinReaders(op);
  }
}

bool Grouping::joinReaders(Operation *op) {
  if (!groupOf[op]->isOpen)
    return false;
  llvm::SmallSetVector<Group *, 4> readers;
  for (Operation *user : op->getUsers())
    if (Group *reader = groupOf.lookup(user); reader && reader->isOpen)
      readers.insert(reader);
  SmallVector<Group *> latestFirst = readers.takeVector();
  llvm::sort(latestFirst, [](Group *a, Group *b) { return a->last > b->last; });
  bool hasJoined = false;
  for (Group *reader : latestFirst)
    hasJoined |= tryJoin(groupOf[op], reader);
  return hasJoined;
}

SmallVector<Group *> Grouping::getOrder() {
  DenseMap<Group *, unsigned> missing;
  SmallVector<Group *> live;
  for (auto &group : groups)
    if (!group->ops.empty())
      live.push_back(group.get());
  DenseMap<Group *, SmallVector<Group *>> readers;
  for (Group *group : live) {
    llvm::SmallPtrSet<Group *, 8> seen;
    visitReaders(group, [&](Group *reader) {
      if (seen.insert(reader).second) {
        readers[group].push_back(reader);
        ++missing[reader];
      }
    });
  }
  auto isLater = [](Group *a, Group *b) { return a->last > b->last; };
  std::priority_queue<Group *, std::vector<Group *>, decltype(isLater)> ready(isLater);
  for (Group *group : live)
    if (missing.lookup(group) == 0)
      ready.push(group);
  SmallVector<Group *> order;
  while (!ready.empty()) {
    Group *group = ready.top();
    ready.pop();
    order.push_back(group);
    for (Group *reader : readers[group])
      if (--missing[reader] == 0)
        ready.push(reader);
  }
  assert(order.size() == live.size() && "groups depend on each other in a circle");
  return order;
}

// Moves the ops of a group into the body of a new kernel at the builder's place.
static void outline(ArrayRef<Operation *> ops, OpBuilder &builder) {
  llvm::SmallPtrSet<Operation *, 32> members(ops.begin(), ops.end());
  llvm::SetVector<Value> inputs;
  SmallVector<Value> outputs;
  for (Operation *op : ops) {
    for (Value operand : op->getOperands())
      if (!operand.getDefiningOp() || !members.contains(operand.getDefiningOp()))
        inputs.insert(operand);
    for (Value result : op->getResults()) {
      bool isRead = llvm::any_of(result.getUsers(), [&](Operation *user) { return !members.contains(user); });
      // An op that makes several results makes them all; a dead one still needs a place.
      if (isRead || (op->getNumResults() > 1 && ops.size() == 1))
        outputs.push_back(result);
    }
  }
  Location loc = ops.back()->getLoc();
  auto kernel = KernelOp::create(builder, loc, ValueRange(outputs).getTypes(), inputs.getArrayRef());
  Block &body = kernel.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, body.addArgument(input.getType(), loc));
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  for (Operation *op : ops)
    inner.clone(*op, mapping);
  SmallVector<Value> yielded;
  for (Value output : outputs)
    yielded.push_back(mapping.lookup(output));
  YieldOp::create(inner, loc, yielded);
  for (auto [output, result] : llvm::zip_equal(outputs, kernel.getResults()))
    output.replaceUsesWithIf(result, [&](OpOperand &use) { return !members.contains(use.getOwner()); });
}

namespace {

struct FuseKernelsPass : impl::FuseKernelsBase<FuseKernelsPass> {
  using FuseKernelsBase::FuseKernelsBase;

  void runOnOperation() override {
    getOperation().walk([&](PhaseOp phase) { fuseBlock(phase.getBody().front()); });
  }

  void fuseBlock(Block &block) {
    if (fuse)
      copyExpandingOpsToReaders(block);
    Grouping grouping(block, fuse);
    grouping.fuseAll();
    OpBuilder builder(block.getTerminator());
    SmallVector<Operation *> done;
    for (Group *group : grouping.getOrder()) {
      if (!isLaunched(group->ops.front())) {
        group->ops.front()->moveBefore(block.getTerminator());
        continue;
      }
      outline(group->ops, builder);
      done.append(group->ops);
    }
    for (Operation *op : llvm::reverse(done)) {
      op->dropAllUses();
      op->erase();
    }
  }
};

} // namespace
} // namespace kiln
