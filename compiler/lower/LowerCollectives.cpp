// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives run beside the commands that follow, up to the first command that
// needs their results or overwrites their operands.
#include "compiler/lower/PhaseLowering.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Origin.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kiln::shard;

namespace kiln {

void PhaseLowering::wait(llvm::function_ref<bool(const Pieces &)> isWanted) {
  llvm::erase_if(running, [&](const std::pair<int64_t, Pieces> &each) {
    const auto &[ticket, pieces] = each;
    if (!isWanted(pieces))
      return false;
    SmallVector<Attribute> names;
    for (const Place &place :
         llvm::concat<const Place>(pieces.sources, pieces.targets))
      names.push_back(FlatSymbolRefAttr::get(place.buffer));
    exec::WaitOp::create(commands, phase.getLoc(), ticket,
                         commands.getArrayAttr(names));
    return true;
  });
}

static bool contains(ArrayRef<Place> places, const Place &place) {
  return llvm::any_of(
      places, [&](const Place &other) { return other.buffer == place.buffer; });
}

void PhaseLowering::beforeRead(const Place &place) {
  wait([&](const Pieces &pieces) { return contains(pieces.targets, place); });
}

void PhaseLowering::beforeWrite(const Place &place) {
  wait([&](const Pieces &pieces) {
    return contains(pieces.targets, place) || contains(pieces.sources, place);
  });
}

// Received by all members together: every element by all but the one that has
// it; for a sum that all get, once more.
static int64_t countReceived(const Pieces &pieces, exec::CollectiveKind kind,
                             int64_t members) {
  int64_t elements = 0;
  for (auto [outer, size, inner] :
       llvm::zip_equal(pieces.outers, pieces.sizes, pieces.inners))
    elements += outer * size * inner;
  int64_t times = kind == exec::CollectiveKind::all_reduce ? 2 : 1;
  return times * (members - 1) * elements *
         (pieces.element.getIntOrFloatBitWidth() / 8);
}

void PhaseLowering::start(Operation *op, exec::CollectiveKind kind,
                          ArrayAttr axes, const Pieces &pieces, bool isMax) {
  SmallVector<Attribute> names;
  SmallVector<int64_t> offsets, strides;
  for (auto [source, target] : llvm::zip_equal(pieces.sources, pieces.targets))
    for (const Place &place : {source, target}) {
      names.push_back(FlatSymbolRefAttr::get(place.buffer));
      offsets.push_back(place.offset);
      strides.push_back(place.stride);
    }
  exec::CollectiveOp::create(
      commands, op->getLoc(), kind, isMax, pieces.element, axes, pieces.outers,
      pieces.sizes, pieces.inners, commands.getArrayAttr(names), offsets,
      strides, tickets,
      countReceived(pieces, kind, mesh.countParts(*mesh.findAxes(axes))));
  running.push_back({tickets++, pieces});
  limitMessages();
}

// A phase without samples has no work that hides its sums: were all started at
// once, their messages would take as much as all gradients. Two in flight keep
// the link busy while the messages of the next are made.
void PhaseLowering::limitMessages() {
  constexpr int64_t kMostSums = 2;
  if (!phase.getInputs().empty())
    return;
  auto holdsMessages = [](const Pieces &pieces) {
    return pieces.areSummed && llvm::any_of(pieces.sources, [](Place place) {
             return !place.buffer.getAlwaysLive();
           });
  };
  int64_t excess = llvm::count_if(running,
                                  [&](const auto &each) {
                                    return holdsMessages(each.second);
                                  }) -
                   kMostSums;
  wait([&](const Pieces &pieces) {
    return holdsMessages(pieces) && excess-- > 0;
  });
}

// The sums of a step are not read after its last phase.
bool PhaseLowering::isDeadSum(ReadOp read, Operation *lastReader) {
  bool isLastPhase =
      !phase->getNextNode() || !isa<PhaseOp>(phase->getNextNode());
  Place place = places.lookup(read.getResult());
  return isLastPhase && place.buffer.getKind() == exec::BufferKind::gradient &&
         llvm::none_of(readsOf.lookup(read.getVariableAttr().getAttr()),
                       [&](ReadOp other) {
                         Operation *last = lastUse(other.getResult());
                         return last && lastReader->isBeforeInBlock(last);
                       });
}

// The variable that only this message is made of, if nobody reads it later.
std::optional<Place> PhaseLowering::findDeadSum(Value message, int64_t bytes) {
  auto kernel = root(message).getDefiningOp<KernelOp>();
  if (!kernel || kernel.getNumOperands() != 1 || kernel.getNumResults() != 1 ||
      !message.hasOneUse() || !root(message).hasOneUse())
    return std::nullopt;
  auto read = root(kernel.getOperand(0)).getDefiningOp<ReadOp>();
  if (!read || !isDeadSum(read, kernel))
    return std::nullopt;
  Place place = places.lookup(read.getResult());
  if (int64_t(place.buffer.getBytes()) < bytes)
    return std::nullopt;
  return place;
}

// In the variable that it is assigned to, if nobody reads the old value later;
// otherwise, if nobody else reads its own terms, a sum lies over what they were
// rounded of, or over the terms.
Place PhaseLowering::placeCollected(Operation *op, unsigned index) {
  Value result = op->getResult(index);
  SmallVector<Value> same = {result};
  for (size_t i = 0; i < same.size(); ++i)
    for (Operation *user : same[i].getUsers()) {
      if (auto reshape = dyn_cast<ReshapeOp>(user))
        same.push_back(reshape.getResult());
      auto assign = dyn_cast<AssignOp>(user);
      if (!assign)
        continue;
      bool isReadLater = false;
      for (ReadOp read : readsOf.lookup(assign.getVariableAttr().getAttr()))
        if (Operation *last = lastUse(read.getResult()))
          isReadLater |= last == op || op->isBeforeInBlock(last);
      if (!isReadLater)
        return variablePlace(assign.getVariable());
    }
  Value operand = op->getOperand(index);
  if (isa<AllReduceOp, ReduceScatterOp>(op))
    if (auto place = findDeadSum(operand, getByteSize(result.getType())))
      return *place;
  if (isa<AllReduceOp>(op)) {
    Place place = places.lookup(root(operand));
    auto read = root(operand).getDefiningOp<ReadOp>();
    bool isFree =
        !place.buffer.getAlwaysLive() || (read && isDeadSum(read, op));
    if (isFree && lastUse(operand) == op &&
        llvm::count_if(op->getOperands(), [&](Value other) {
          return places.lookup(root(other)) == place;
        }) == 1)
      return place;
  }
  bool isVariable = isa_and_nonnull<ReadOp>(root(operand).getDefiningOp());
  Location origin = withOrigin(
      findOrigin(operand), kOpAttribute,
      StringAttr::get(op->getContext(), op->getName().stripDialect()));
  return addPlace(origin, getByteSize(result.getType()), /*isOnHost=*/false,
                  isa<AllGatherOp>(op) && isVariable
                      ? exec::BufferKind::gathered
                      : exec::BufferKind::activation);
}

void PhaseLowering::lowerAllReduce(AllReduceOp op) {
  Pieces pieces;
  pieces.areSummed = true;
  for (auto [index, operand] : llvm::enumerate(op.getOperands())) {
    Place source = places.lookup(root(operand)),
          target = placeCollected(op, index);
    beforeRead(source);
    beforeWrite(target);
    auto elements =
        RankedTensorType::get({tensorType(operand).getNumElements()},
                              tensorType(operand).getElementType());
    pieces.add(source, target, elements, 0, 1, 1);
    places[op.getResult(index)] = target;
  }
  start(op, exec::CollectiveKind::all_reduce, op.getAxes(), pieces,
        op.getCombine() == Combine::max);
}

template <typename Op> void PhaseLowering::lowerCutCollective(Op op) {
  constexpr bool isGather = std::is_same_v<Op, AllGatherOp>,
                 isSlice = std::is_same_v<Op, AllSliceOp>;
  Pieces pieces;
  pieces.areSummed = std::is_same_v<Op, ReduceScatterOp>;
  for (auto [index, operand] : llvm::enumerate(op.getOperands())) {
    Value result = op.getResults()[index];
    Place source = places.lookup(root(operand)),
          target = placeCollected(op, index);
    beforeRead(source);
    beforeWrite(target);
    pieces.add(source, target, tensorType(isGather ? result : operand),
               op.getDimensions()[index], op.getBlocks()[index],
               op.getUnits()[index]);
    places[result] = target;
    if (!isSlice)
      continue;
    exec::SliceOp::create(
        commands, op.getLoc(), pieces.element, op.getAxes(), pieces.outers,
        pieces.sizes, pieces.inners,
        commands.getArrayAttr({FlatSymbolRefAttr::get(source.buffer),
                               FlatSymbolRefAttr::get(target.buffer)}),
        ArrayRef<int64_t>{source.offset, target.offset},
        ArrayRef<int64_t>{source.stride, target.stride});
    pieces = {};
  }
  if (!isSlice)
    start(op,
          isGather ? exec::CollectiveKind::all_gather
                   : exec::CollectiveKind::reduce_scatter,
          op.getAxes(), pieces, /*isMax=*/false);
}

bool PhaseLowering::lowerCollective(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](AllReduceOp reduce) { return lowerAllReduce(reduce), true; })
      .Case<AllGatherOp, ReduceScatterOp, AllSliceOp>(
          [&](auto cut) { return lowerCutCollective(cut), true; })
      .Default(false);
}

} // namespace kiln
