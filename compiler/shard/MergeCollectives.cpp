// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes few large collectives of many small ones, and puts them where they run
// beside other work. A sum starts as soon as its partial sums are known; a
// gather of parameters starts one bucket ahead of its use.
//
// Nothing here depends on the batch, so that replicas with different shares run
// the same collectives. Nor does it depend on the number of layers: a bucket
// ends with its layer, so the buckets of all inner layers are alike, and a
// deeper model has more of them.
#include "compiler/pipeline/Passes.h"
#include "compiler/shard/Collectives.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Origin.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_MERGECOLLECTIVES
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct MergeCollectivesPass : impl::MergeCollectivesBase<MergeCollectivesPass> {
  using MergeCollectivesBase::MergeCollectivesBase;

  void runOnOperation() override {
    for (auto step : getOperation().getOps<StepOp>())
      for (Region *region :
           {&step.getPrologue(), &step.getAccumulate(), &step.getUpdate()})
        merge(region->front());
    for (auto function : getOperation().getOps<func::FuncOp>())
      merge(function.front());
  }

  void merge(Block &block);
  void mergeLate(Block &block);
  void mergeGathers(Block &block);
};

} // namespace

static bool isReduction(Operation *op) {
  auto collective = dyn_cast_or_null<Collective>(op);
  return collective && collective.reduces();
}

static bool isGather(Operation *op) {
  return isExchange(op) && !isReduction(op);
}

// Whether a value is read from a variable, so that it can be gathered at any
// time.
static bool isRead(Value value) {
  while (isMovement(value.getDefiningOp(), Movement::view))
    value = value.getDefiningOp()->getOperand(0);
  return !value.getDefiningOp() || value.getDefiningOp<ReadOp>();
}

// Sums and gathers of new parameters run when their last operand is known.
static bool isLate(Operation *op) {
  return isReduction(op) || (isGather(op) && !isRead(op->getOperand(0)) &&
                             tensorType(op->getOperand(0)).hasStaticShape());
}

// Null if there is none.
static Operation *findFirstUse(Operation *op) {
  Operation *first = nullptr;
  for (Operation *user : op->getUsers())
    if (!first || user->isBeforeInBlock(first))
      first = user;
  return first;
}

// Moves arithmetic on scalars to its first use, so that sums of scalars before
// it, such as those of the norm of all gradients, can share a bucket.
static void sinkScalars(Block &block) {
  SmallVector<Operation *> scalars;
  for (Operation &op : block)
    if (isa<Structured>(op) && !op.use_empty() &&
        tensorType(op.getResult(0)).getRank() == 0 &&
        llvm::all_of(op.getOperands(), [](Value operand) {
          return tensorType(operand).getRank() == 0;
        }))
      scalars.push_back(&op);
  for (Operation *op : llvm::reverse(scalars))
    op->moveBefore(findFirstUse(op));
}

// Moves views to the ops that compute their operands: a gradient is flattened
// where it is assigned, and its sum would wait for that.
static void hoistViews(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block))
    if (isMovement(&op, Movement::view) && op.getNumOperands() == 1)
      if (Operation *maker = op.getOperand(0).getDefiningOp())
        op.moveAfter(maker);
}

static bool isPointwise(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  return isMovement(op, Movement::view) || isa<ReadOp>(op) ||
         (structured && structured.getReduction() == Reduction::none) ||
         (op->getNumOperands() == 0 && isMemoryEffectFree(op));
}

// Moves an op, and what it alone reads, behind the last op on the way that does
// more than to compute each element by itself.
static void hoist(Operation *op) {
  SmallVector<Operation *> moved = {op};
  Operation *last = nullptr;
  for (size_t index = 0; index < moved.size(); ++index)
    for (Value operand : moved[index]->getOperands()) {
      Operation *maker = operand.getDefiningOp();
      if (maker && isPointwise(maker) && maker->hasOneUse())
        moved.push_back(maker);
      else if (maker && (!last || last->isBeforeInBlock(maker)))
        last = maker;
    }
  if (!last)
    return;
  llvm::sort(moved,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *each : llvm::reverse(moved))
    each->moveAfter(last);
}

// A wide gradient is masked and rounded to a message where the micro-batch
// ends, and all of them would wait for that.
static void hoistMessages(Block &block) {
  SmallVector<Operation *> messages;
  for (Operation &op : block)
    if (isReduction(&op))
      for (Value operand : op.getOperands())
        if (Operation *maker = operand.getDefiningOp();
            maker && isPointwise(maker) && maker->hasOneUse() &&
            isNarrow(tensorType(operand).getElementType()))
          messages.push_back(maker);
  for (Operation *message : messages)
    hoist(message);
}

// Moves conversions of sums to their first use, so that later sums can share
// their bucket.
static void sinkConversions(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (!isa<ConvertOp>(op) || op.use_empty() ||
        !isReduction(op.getOperand(0).getDefiningOp()))
      continue;
    op.moveBefore(findFirstUse(&op));
  }
}

void startSums(Block &block) {
  hoistViews(block);
  hoistMessages(block);
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!isReduction(&op))
      continue;
    Operation *last = nullptr;
    for (Value operand : op.getOperands())
      if (Operation *maker = operand.getDefiningOp();
          maker && (!last || last->isBeforeInBlock(maker)))
        last = maker;
    // Sums that start together keep their order.
    while (last && isReduction(last->getNextNode()) &&
           last->getNextNode() != &op)
      last = last->getNextNode();
    if (last)
      op.moveAfter(last);
  }
}

static int64_t countBytes(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values) {
    RankedTensorType type = tensorType(value);
    SmallVector<int64_t> shape(type.getShape());
    llvm::replace(shape, ShapedType::kDynamic, int64_t(1)); // One sample.
    bytes += getByteSize(RankedTensorType::get(shape, type.getElementType()));
  }
  return bytes;
}

static bool canShare(Operation *a, Operation *b) {
  auto element = [](Operation *op) {
    return tensorType(op->getOperand(0)).getElementType();
  };
  return a->getName() == b->getName() && element(a) == element(b) &&
         getLayer(a->getLoc()) == getLayer(b->getLoc()) &&
         a->getAttr("axes") == b->getAttr("axes") &&
         a->getAttr("combine") == b->getAttr("combine");
}

// One op before `at` for all members.
static Operation *fuse(ArrayRef<Operation *> members, Operation *at) {
  if (members.size() == 1)
    return members.front();
  OpBuilder builder(at);
  SmallVector<Value> operands;
  SmallVector<Type> types;
  SmallVector<int64_t> dimensions, blocks, units;
  for (Operation *member : members) {
    llvm::append_range(operands, member->getOperands());
    llvm::append_range(types, member->getResultTypes());
    auto append = [&](SmallVector<int64_t> &to, StringRef name) {
      if (auto values = member->getAttrOfType<DenseI64ArrayAttr>(name))
        llvm::append_range(to, values.asArrayRef());
    };
    append(dimensions, "dimensions");
    append(blocks, "blocks");
    append(units, "units");
  }
  OperationState state(at->getLoc(), at->getName(), operands, types,
                       at->getAttrs());
  Operation *merged = builder.create(state);
  if (!dimensions.empty()) {
    merged->setAttr("dimensions", builder.getDenseI64ArrayAttr(dimensions));
    merged->setAttr("blocks", builder.getDenseI64ArrayAttr(blocks));
    merged->setAttr("units", builder.getDenseI64ArrayAttr(units));
  }
  unsigned first = 0;
  for (Operation *member : members) {
    member->replaceAllUsesWith(
        merged->getResults().slice(first, member->getNumResults()));
    first += member->getNumResults();
    member->erase();
  }
  return merged;
}

// A bucket runs when its last member can, and closes before any member is used.
void MergeCollectivesPass::mergeLate(Block &block) {
  struct Bucket {
    SmallVector<Operation *> members;
    int64_t bytes = 0;
  };
  SmallVector<Bucket> open;
  auto closeIf = [&](llvm::function_ref<bool(const Bucket &)> isDone) {
    llvm::erase_if(open, [&](const Bucket &bucket) {
      if (!isDone(bucket))
        return false;
      (void)fuse(bucket.members, bucket.members.back());
      return true;
    });
  };
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (!isLate(&op))
      continue;
    int64_t bytes = countBytes(op.getOperands());
    auto isUsed = [&](Operation *member) {
      return llvm::any_of(member->getUsers(), [&](Operation *user) {
        return user == &op || user->isBeforeInBlock(&op);
      });
    };
    closeIf([&](const Bucket &bucket) {
      return llvm::any_of(bucket.members, isUsed) ||
             (canShare(bucket.members.front(), &op) &&
              bucket.bytes + bytes > bucketBytes);
    });
    auto found = llvm::find_if(open, [&](const Bucket &bucket) {
      return canShare(bucket.members.front(), &op);
    });
    Bucket &bucket = found == open.end() ? open.emplace_back() : *found;
    bucket.members.push_back(&op);
    bucket.bytes += bytes;
  }
  closeIf([](const Bucket &) { return true; });
}

void MergeCollectivesPass::merge(Block &block) {
  sinkScalars(block);
  sinkConversions(block);
  startSums(block);
  mergeLate(block);
  mergeGathers(block);
}

// A bucket starts before the first use of the previous bucket.
void MergeCollectivesPass::mergeGathers(Block &block) {
  SmallVector<SmallVector<Operation *>> buckets;
  int64_t bytes = 0;
  auto isReady = [&](Operation *op, Operation *at) {
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      Operation *maker = operand.getDefiningOp();
      return !maker || maker->isBeforeInBlock(at);
    });
  };
  for (Operation &op : block) {
    // Activations are gathered where they are made.
    if (!isGather(&op) || !tensorType(op.getOperand(0)).hasStaticShape())
      continue;
    int64_t own = countBytes(op.getResults());
    if (buckets.empty() || !canShare(buckets.back().front(), &op) ||
        !isReady(&op, buckets.back().front()) || bytes + own > bucketBytes) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(&op);
    bytes += own;
  }
  SmallVector<Operation *> gathers;
  for (ArrayRef<Operation *> bucket : buckets)
    gathers.push_back(fuse(bucket, bucket.front()));
  Operation *firstUse = nullptr; // Of the previous bucket.
  for (Operation *gather : gathers) {
    Operation *use = findFirstUse(gather);
    if (firstUse && firstUse->isBeforeInBlock(gather) &&
        isReady(gather, firstUse))
      gather->moveBefore(firstUse);
    firstUse = use;
  }
}

} // namespace kiln
