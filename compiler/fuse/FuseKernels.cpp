// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups ops into kernels. Every op starts alone; from the last op to the
// first, each joins the kernels that read it while they can share one nest of
// loops (KernelDomain) and no cycle arises. Joining readers rather than writers
// computes a value where it is needed: what only the backward pass needs is not
// made and kept by the forward pass. Two groups may share their loops only once
// an op that relates them has joined, so the walk is repeated until nothing
// changes. An op whose result is larger than all it reads (a broadcast, a
// constant, a bf16 number made f32) is copied to every reader, so it is never
// stored. So is, when all have joined, one whose readers in other kernels read
// all that it reads: the square of a gradient, for its norm and for Adam.
#include "compiler/fuse/KernelDomain.h"
#include "compiler/pipeline/Passes.h"

#include "mlir/IR/IRMapping.h"

#include <queue>
#include <unordered_map>

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_FUSEKERNELS
#include "compiler/pipeline/Passes.h.inc"

// Ops that cost nothing at run time or tie the block to the world outside.
static bool isLaunched(Operation *op) {
  return !isa<ReadOp, AssignOp, OutputOp, YieldOp, ReshapeOp, DeferOp,
              TransferOp>(op) &&
         !isCollective(op);
}

static int64_t countElements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

static bool isExpanding(Operation *op) {
  if (!isFusable(op) || isa<EmbeddingOp>(op))
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

/// A set of ops that become one kernel. What joining asks of the ops is kept
/// beside them: groups are looked at far more often than they change.
struct Group {
  SmallVector<Operation *> ops; // In program order.
  bool isOpen = true;           // Whether others may join.
  bool isScalar = false;        // Neither makes nor reads more than scalars.
  bool isOnlyExpanding = false;
  bool hasUnusualRows = false;
  int64_t largest = 0;          // Elements of the largest value made or read.
  unsigned last = 0;            // Position of its last op in the block.
  unsigned rank = 0;            // Less than that of every group that reads it.
  unsigned joins = 0;           // How often it has changed.
  unsigned seenBy = 0;          // The last search that has come here.
  Group *joined = nullptr;      // The group that has taken its ops.
  SmallVector<Group *> readers; // Perhaps joined to others since.
};

class Grouping {
public:
  Grouping(Block &block, const FusionLimits &limits);
  void fuseAll();
  void copyToReaders();
  /// Groups in an order that respects their dependences.
  SmallVector<Group *> getOrder();

private:
  using Edges = DenseMap<Group *, llvm::SetVector<Group *>>;
  Edges findEdges(bool withVariables);
  SmallVector<Group *> sort(Edges edges);
  bool joinReaders(Operation *op);
  bool joinSiblings(Value value);
  bool canCopy(Operation *op, Group *reader);
  bool canLose(Group *group, Operation *op);
  void copyTo(Group *reader, Operation *op);
  bool tryJoin(Group *writer, Group *reader);
  bool canJoin(Group *writer, Group *reader);
  bool canShareLoops(ArrayRef<Operation *> ops);
  bool markReadersBefore(Group *from, Group *to);
  void mergeRanks(Group *from, Group *to);
  SmallVector<Operation *> merge(ArrayRef<Operation *> some,
                                 ArrayRef<Operation *> others);
  SmallVector<Group *> findReaders(Group *group);

  bool isFusing() const { return limits.operations > 1; }

  Block &block;
  FusionLimits limits;
  bool joinsUnusual = false; // See hasUnusualRows.
  std::vector<std::unique_ptr<Group>> groups;
  SmallVector<Group *> ranked; // By rank.
  unsigned searches = 0;
  /// What was found of lists of ops, by their hash: layers are alike.
  std::unordered_map<size_t, bool> sharing;
  /// Pairs of groups that could not join, with how often each had changed. As
  /// long as neither changes they cannot: what keeps them apart is theirs, or a
  /// path between them through others, which joins of others leave one.
  llvm::DenseSet<
      std::pair<std::pair<Group *, unsigned>, std::pair<Group *, unsigned>>>
      refused;
  DenseMap<Operation *, Group *> groupOf;
  DenseMap<Operation *, unsigned> positions;
  /// What devices do together they do in the order of the program, however each
  /// of them fuses the rest.
  DenseMap<Operation *, Operation *> nextCollective;
};

} // namespace

Grouping::Grouping(Block &block, const FusionLimits &limits)
    : block(block), limits(limits) {
  unsigned position = 0;
  for (Operation &op : block.without_terminator()) {
    groups.push_back(std::make_unique<Group>());
    Group &group = *groups.back();
    group.ops = {&op};
    group.isOpen = isFusing() && isLaunched(&op) && isFusable(&op);
    group.last = group.rank = position;
    group.isScalar = isScalar(&op);
    group.isOnlyExpanding = isExpanding(&op);
    group.hasUnusualRows = group.isOpen && hasUnusualRows(&op);
    group.largest = countLargest(&op);
    ranked.push_back(&group);
    groupOf[&op] = &group;
    positions[&op] = position++;
  }
  Operation *previous = nullptr;
  for (Operation &op : block)
    if (isCollective(&op) && !isa<AllSliceOp>(op)) {
      if (previous)
        nextCollective[previous] = &op;
      previous = &op;
    }
  for (auto &group : groups)
    group->readers = findReaders(group.get());
}

// The groups that must come after this one.
SmallVector<Group *> Grouping::findReaders(Group *group) {
  llvm::SmallSetVector<Group *, 8> readers;
  for (Operation *op : group->ops) {
    for (Operation *user : op->getUsers())
      if (Group *reader = groupOf.lookup(user); reader && reader != group)
        readers.insert(reader);
    if (Operation *next = nextCollective.lookup(op))
      readers.insert(groupOf[next]);
  }
  return readers.takeVector();
}

static Group *resolve(Group *group) {
  while (group->joined)
    group = group->joined;
  return group;
}

// Marks the groups of lower rank than `to` that need something `from` makes.
// False if `to` needs one of them in turn: fusing `from` and `to` would then
// close a cycle.
bool Grouping::markReadersBefore(Group *from, Group *to) {
  SmallVector<Group *> work = {from};
  ++searches;
  while (!work.empty()) {
    Group *group = work.pop_back_val();
    for (Group *&slot : group->readers) {
      Group *reader = slot = resolve(slot);
      if (reader == to && group != from)
        return false;
      if (reader->rank < to->rank && reader->seenBy != searches &&
          reader != from) {
        reader->seenBy = searches;
        work.push_back(reader);
      }
    }
  }
  return true;
}

// The one group takes its place before those that read it, which are marked;
// the groups between the two that do not read it move before it.
void Grouping::mergeRanks(Group *from, Group *to) {
  unsigned begin = from->rank, end = to->rank + 1;
  SmallVector<Group *> before, after;
  for (Group *group : ArrayRef(ranked).slice(begin, end - begin))
    if (group != from && group != to)
      (group->seenBy == searches ? after : before).push_back(group);
  before.append({from, to});
  before.append(after);
  for (auto [index, group] : llvm::enumerate(before)) {
    ranked[begin + index] = group;
    group->rank = begin + index;
  }
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

// Of one group that has taken the ops of the other.
static void joinReaderLists(Group *group, Group *other) {
  llvm::SmallSetVector<Group *, 8> readers;
  for (Group *reader : llvm::concat<Group *>(group->readers, other->readers))
    if (Group *now = resolve(reader); now != group)
      readers.insert(now);
  group->readers = readers.takeVector();
  other->readers.clear();
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
  reader->joined = writer;
  reader->ops.clear();
  joinReaderLists(writer, reader);
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

// Whether they can share loops and no cycle arises; then their ranks are those
// of one group.
bool Grouping::canJoin(Group *writer, Group *reader) {
  if (writer->ops.size() + reader->ops.size() > limits.operations ||
      mixesScalars(writer, reader))
    return false;
  if (reader->isOnlyExpanding)
    return false; // Its result would be stored.
  if (!canShareLoops(merge(writer->ops, reader->ops)))
    return false;
  Group *earlier = writer->rank < reader->rank ? writer : reader;
  Group *later = earlier == writer ? reader : writer;
  if (!markReadersBefore(earlier, later))
    return false;
  mergeRanks(earlier, later);
  return true;
}

void Grouping::fuseAll() {
  if (!isFusing())
    return;
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  bool hasChanged = true;
  while (hasChanged || !joinsUnusual) {
    joinsUnusual = !hasChanged;
    hasChanged = false;
    for (Operation *op : llvm::reverse(ops))
      hasChanged |= joinReaders(op);
    for (BlockArgument argument : block.getArguments())
      hasChanged |= joinSiblings(argument);
    for (Operation *op : ops)
      for (Value result : op->getResults())
        hasChanged |= joinSiblings(result);
  }
}

// Kernels that read the same large value read it once if they are one. What is
// smaller than all they compute is cheap to read twice, and would tie together
// kernels that share nothing else.
bool Grouping::joinSiblings(Value value) {
  llvm::SmallSetVector<Group *, 4> readers;
  for (Operation *user : value.getUsers())
    if (Group *reader = groupOf.lookup(user); reader && reader->isOpen)
      if (countElements(value) > 1 && countElements(value) == reader->largest)
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

// Whether `reader` would read nothing more if it computed `op` itself.
bool Grouping::canCopy(Operation *op, Group *reader) {
  if (!reader || !reader->isOpen || reader->ops.size() >= limits.operations)
    return false;
  bool readsAll = llvm::all_of(op->getOperands(), [&](Value operand) {
    return llvm::any_of(operand.getUsers(), [&](Operation *user) {
      return groupOf.lookup(user) == reader;
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
    return groupOf.lookup(use.getOwner()) == reader;
  });
}

// Whether the others can still share loops without `op`, if nothing of the
// group reads it: it may be what relates them.
bool Grouping::canLose(Group *group, Operation *op) {
  if (group->ops.size() == 1 ||
      llvm::any_of(op->getUsers(), [&](Operation *user) {
        return groupOf.lookup(user) == group;
      }))
    return true;
  SmallVector<Operation *> others(group->ops);
  llvm::erase(others, op);
  return KernelDomain::analyse(others).has_value();
}

// From the last op to the first: the copy of one op may be what reads the next.
void Grouping::copyToReaders() {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    if (groupOf[&op]->isOpen && op.getNumResults() == 1 &&
        countElements(op.getResult(0)) > 1 && isWithoutReduction(&op))
      ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    Group *writer = groupOf[op];
    llvm::SmallSetVector<Group *, 4> readers;
    for (Operation *user : op->getUsers())
      if (groupOf.lookup(user) != writer)
        readers.insert(groupOf.lookup(user));
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

// Edges of the order: from the writer of a value to its readers, and if wanted
// from the readers of a variable to the group that makes its next value, so
// that it can be written in place.
Grouping::Edges Grouping::findEdges(bool withVariables) {
  Edges edges;
  for (auto &group : groups)
    for (Group *reader : findReaders(group.get()))
      edges[group.get()].insert(reader);
  if (!withVariables)
    return edges;
  llvm::StringMap<SmallVector<ReadOp>> reads;
  for (auto read : block.getOps<ReadOp>())
    reads[read.getVariable()].push_back(read);
  for (auto assign : block.getOps<AssignOp>()) {
    Group *maker = groupOf.lookup(assign.getValue().getDefiningOp());
    for (ReadOp read : reads[assign.getVariable()])
      for (Operation *user : read->getUsers())
        if (Group *reader = groupOf.lookup(user);
            maker && reader && reader != maker)
          edges[reader].insert(maker);
  }
  return edges;
}

// Whether a group gives variables their next values.
static bool isUpdate(Group *group) {
  bool hasAssign = false;
  for (Operation *op : group->ops)
    for (Operation *user : op->getUsers())
      hasAssign |= isa<AssignOp>(user);
  return hasAssign;
}

// What costs no memory of its own, or frees some. What devices do together
// keeps its place in the program, which is chosen for it.
static bool isEager(Group *group) {
  if (isCollective(group->ops.front()))
    return false;
  // The host takes one tensor after the other.
  if (auto transfer = dyn_cast<TransferOp>(group->ops.front()))
    return transfer.getMemory() == Memory::device || group->isScalar;
  return !isLaunched(group->ops.front()) || isUpdate(group) || group->isScalar;
}

// Follows the program, except that updates of variables, and the scalars that
// they wait for, run as soon as they can: then a gradient dies where it is
// made, while it is still in the cache.
SmallVector<Group *> Grouping::sort(Edges edges) {
  DenseMap<Group *, unsigned> missing;
  for (auto &entry : edges)
    for (Group *later : entry.second)
      ++missing[later];
  auto isLater = [](std::pair<unsigned, Group *> a,
                    std::pair<unsigned, Group *> b) {
    return std::pair(a.first, a.second->last) >
           std::pair(b.first, b.second->last);
  };
  std::priority_queue<std::pair<unsigned, Group *>,
                      std::vector<std::pair<unsigned, Group *>>,
                      decltype(isLater)>
      ready(isLater);
  auto push = [&](Group *group) {
    ready.push({isEager(group) ? 0 : 1, group});
  };
  for (auto &group : groups)
    if (!group->ops.empty() && missing.lookup(group.get()) == 0)
      push(group.get());
  SmallVector<Group *> order;
  while (!ready.empty()) {
    Group *group = ready.top().second;
    ready.pop();
    order.push_back(group);
    for (Group *later : edges[group])
      if (--missing[later] == 0)
        push(later);
  }
  return order;
}

// Two variables that take each other's values have no order in which both are
// written in place; one is then copied.
SmallVector<Group *> Grouping::getOrder() {
  size_t live =
      llvm::count_if(groups, [](auto &group) { return !group->ops.empty(); });
  SmallVector<Group *> order = sort(findEdges(/*withVariables=*/true));
  return order.size() == live ? order
                              : sort(findEdges(/*withVariables=*/false));
}

// Moves the ops of a group into the body of a new kernel at the builder's
// place.
static void outline(ArrayRef<Operation *> ops, OpBuilder &builder) {
  llvm::SmallPtrSet<Operation *, 32> members(ops.begin(), ops.end());
  SmallVector<Value> inputs, outputs;
  for (Operation *op : ops) {
    for (Value operand : op->getOperands()) {
      bool isOutside = !operand.getDefiningOp() ||
                       !members.contains(operand.getDefiningOp());
      // Code for a single op finds its operands by their number, even if two
      // are the same.
      if (isOutside &&
          (ops.size() == 1 || !llvm::is_contained(inputs, operand)))
        inputs.push_back(operand);
    }
    for (Value result : op->getResults()) {
      bool isRead = llvm::any_of(result.getUsers(), [&](Operation *user) {
        return !members.contains(user);
      });
      // An op that makes several results makes them all; a dead one still needs
      // a place.
      if (isRead || (op->getNumResults() > 1 && ops.size() == 1))
        outputs.push_back(result);
    }
  }
  Location loc = ops.back()->getLoc();
  auto kernel =
      KernelOp::create(builder, loc, ValueRange(outputs).getTypes(), inputs);
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
    output.replaceUsesWithIf(result, [&](OpOperand &use) {
      return !members.contains(use.getOwner());
    });
}

namespace {

struct FuseKernelsPass : impl::FuseKernelsBase<FuseKernelsPass> {
  explicit FuseKernelsPass(const Backends *backends) : backends(backends) {}

  void runOnOperation() override {
    FusionLimits limits = (backends ? *backends : getDefaultBackends(reference))
                              .getDevice()
                              .getFusionLimits();
    getOperation().walk(
        [&](PhaseOp phase) { fuseBlock(phase.getBody().front(), limits); });
  }

  void fuseBlock(Block &block, const FusionLimits &limits) {
    if (limits.operations > 1)
      copyExpandingOpsToReaders(block);
    Grouping grouping(block, limits);
    grouping.fuseAll();
    grouping.copyToReaders();
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

  const Backends *backends;
};

} // namespace

std::unique_ptr<Pass> createFuseKernels(const Backends *backends) {
  return std::make_unique<FuseKernelsPass>(backends);
}

} // namespace kiln
