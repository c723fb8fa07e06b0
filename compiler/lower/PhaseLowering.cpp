// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/PhaseLowering.h"
#include "compiler/lower/LaunchOrigin.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Origin.h"

#include <numeric>

using namespace mlir;

namespace kiln {

// Whether the result lies where the first operand does.
static bool isAlias(Operation *op) { return isMovement(op, Movement::view); }

// The value whose buffer an alias shares.
Value PhaseLowering::root(Value value) {
  while (value.getDefiningOp() && isAlias(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

void PhaseLowering::findLastUses() {
  Block &block = phase.getBody().front();
  for (auto read : block.getOps<ReadOp>())
    readsOf[read.getVariableAttr().getAttr()].push_back(read);
  for (Operation &op : block)
    if (!isAlias(&op))
      for (Value operand : op.getOperands())
        lastUses[root(operand)] = &op;
  for (auto assign : block.getOps<AssignOp>())
    lastUses[root(assign.getValue())] =
        block.getTerminator(); // Perhaps copied at the end.
}

Operation *PhaseLowering::lastUse(Value value) {
  return lastUses.lookup(root(value));
}

Location PhaseLowering::findOrigin(Value value) {
  value = root(value);
  Operation *op = value.getDefiningOp();
  if (!op)
    return value.getLoc();
  Location loc = op->getLoc();
  if (auto kernel = dyn_cast<KernelOp>(op)) {
    Operation *yield = kernel.getBody().front().getTerminator();
    unsigned index = cast<OpResult>(value).getResultNumber();
    op = yield->getOperand(index).getDefiningOp();
    loc = op->getLoc();
  } else if (auto read = dyn_cast<ReadOp>(op)) {
    loc = NameLoc::get(read.getVariableAttr().getAttr(), loc);
  }
  return withOrigin(
      loc, kOpAttribute,
      StringAttr::get(module.getContext(), op->getName().stripDialect()));
}

Place PhaseLowering::addPlace(Location origin, int64_t bytes, bool isOnHost,
                              exec::BufferKind kind) {
  if (kind == exec::BufferKind::activation &&
      getOrigin(origin, kGradientOfAttribute))
    kind = exec::BufferKind::gradient;
  std::string name =
      (program + "." + phase.getName() + "." + Twine(counter++)).str();
  auto buffer =
      exec::BufferOp::create(buffers, origin, name, bytes, kind,
                             /*always_live=*/false, isOnHost, nullptr);
  symbols.insert(buffer);
  return {buffer};
}

void PhaseLowering::placeInputs() {
  for (auto [name, argument] :
       llvm::zip(phase.getInputs(), phase.getBody().getArguments())) {
    auto symbol = "input." + program + "." + cast<StringAttr>(name).str();
    int64_t bytes = getByteSize(argument.getType());
    Place place{symbols.lookup<exec::BufferOp>(symbol)};
    if (phase.getRepeat() > 1 || phase.getFirst() > 0) {
      int64_t sample = bytes / int64_t(phase.getSamples());
      place.offset = phase.getFirst() * sample;
      place.stride = phase.getRepeat() > 1 ? bytes : 0;
    }
    places[argument] = place;
  }
}

// A result that a variable is assigned is written there at once, if nothing
// reads the old value afterwards and the kernel itself may overwrite what it
// reads.
std::optional<Place>
PhaseLowering::placeInVariable(KernelOp kernel, unsigned index,
                               ArrayRef<SmallVector<unsigned>> overwritable) {
  AssignOp assign;
  for (Operation *user : kernel.getResult(index).getUsers())
    if (auto found = dyn_cast<AssignOp>(user); found && !assign)
      assign = found;
  if (!assign)
    return std::nullopt;
  Place place = variablePlace(assign.getVariable());
  for (ReadOp read : readsOf.lookup(assign.getVariableAttr().getAttr())) {
    for (OpOperand &use : read->getUses()) {
      Operation *user = use.getOwner();
      if (isAlias(user))
        return std::nullopt;
      if (user == kernel
              ? !llvm::is_contained(overwritable[index], use.getOperandNumber())
              : kernel->isBeforeInBlock(user))
        return std::nullopt;
    }
  }
  return place;
}

Place PhaseLowering::placeResult(KernelOp kernel, unsigned index,
                                 ArrayRef<SmallVector<unsigned>> overwritable,
                                 llvm::SmallBitVector &taken, bool isOnHost) {
  if (auto place = placeInVariable(kernel, index, overwritable))
    return *place;
  Value result = kernel.getResult(index);
  for (unsigned input : overwritable[index]) {
    Value operand = kernel.getOperand(input);
    Place place = places.lookup(root(operand));
    bool dies = lastUse(operand) == kernel && !place.buffer.getAlwaysLive() &&
                llvm::count(kernel.getOperands(), operand) == 1;
    if (!dies || taken.test(input))
      continue;
    // Another operand may be a reshape of the same buffer.
    bool isShared = llvm::count_if(kernel.getOperands(), [&](Value other) {
                      return places.lookup(root(other)) == place;
                    }) > 1;
    if (isShared)
      continue;
    taken.set(input);
    return place;
  }
  return addPlace(findOrigin(result), getByteSize(result.getType()), isOnHost);
}

// Buffers are aligned; offsets and strides may be multiples of less.
static int64_t getAlignment(const Place &place) {
  return std::gcd(std::gcd(place.offset, place.stride), exec::kLeastAlignment);
}

static OperandFacts findFacts(ArrayRef<Place> operands, bool isOnHost,
                              ArrayRef<SmallVector<unsigned>> overwritable) {
  OperandFacts facts;
  facts.isOnHost = isOnHost;
  for (const Place &place : operands)
    facts.alignments.push_back(getAlignment(place));
  for (auto [output, inputs] : llvm::enumerate(overwritable))
    for (unsigned input : inputs)
      facts.overlaps.append({int64_t(input), int64_t(output)});
  return facts;
}

// And has no place yet that would tell where it lies.
bool PhaseLowering::isMadeOfConstants(Value value) {
  value = root(value);
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<KernelOp>(op) && !places.contains(value) &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return isMadeOfConstants(operand);
         });
}

// Whether a value lies in the host's memory, also before it has its place.
bool PhaseLowering::isHostValue(Value value) {
  value = root(value);
  if (auto known = places.find(value); known != places.end())
    return known->second.buffer.getHost();
  Operation *op = value.getDefiningOp();
  if (auto read = dyn_cast_or_null<ReadOp>(op))
    return variablePlace(read.getVariable()).buffer.getHost();
  if (auto transfer = dyn_cast_or_null<TransferOp>(op))
    return transfer.getMemory() == Memory::host;
  auto kernel = dyn_cast_or_null<KernelOp>(op);
  return kernel && isOnHost(kernel);
}

// A kernel runs where its operands lie, all of which lie together. Constants,
// and what is made of them alone, lie where they are read.
bool PhaseLowering::isOnHost(KernelOp kernel) {
  for (Value operand : kernel.getOperands())
    if (!isMadeOfConstants(operand))
      return isHostValue(operand);
  return llvm::any_of(kernel->getUsers(), [&](Operation *user) {
    auto reader = dyn_cast<KernelOp>(user);
    return reader && isOnHost(reader);
  });
}

LogicalResult PhaseLowering::lowerKernel(KernelOp kernel) {
  KernelTable::Body &body = kernels.find(kernel);
  SmallVector<Place> operands;
  llvm::SmallBitVector taken(kernel.getNumOperands());
  bool isHost = isOnHost(kernel);
  unsigned hostOperands = 0;
  for (Value operand : kernel.getOperands()) {
    Place place = places.lookup(root(operand));
    hostOperands += place.buffer.getHost();
    beforeRead(place);
    operands.push_back(place);
  }
  if (hostOperands != 0 && hostOperands != kernel.getNumOperands())
    return kernel.emitOpError("reads ")
           << hostOperands << " operands in the host's memory and "
           << kernel.getNumOperands() - hostOperands
           << " in the device's; wanted all in one";
  for (unsigned index = 0; index < kernel.getNumResults(); ++index) {
    Place place = placeResult(kernel, index, body.overwritable, taken, isHost);
    beforeWrite(place);
    places[kernel.getResult(index)] = place;
    operands.push_back(place);
  }
  SmallVector<Attribute> names;
  SmallVector<int64_t> offsets, strides;
  for (const Place &place : operands) {
    names.push_back(FlatSymbolRefAttr::get(place.buffer));
    offsets.push_back(place.offset);
    strides.push_back(place.stride);
  }
  exec::KernelOp code =
      kernels.get(body, findFacts(operands, isHost, body.overwritable));
  exec::LaunchOp::create(
      commands, kernel.getLoc(), code.getSymName(),
      commands.getArrayAttr(names), offsets, strides, kernel.getNumOperands(),
      describeOrigin(kernel, symbols), body.flops, body.bytes);
  return success();
}

void PhaseLowering::copy(Place source, Place target, int64_t bytes) {
  beforeRead(source);
  beforeWrite(target);
  exec::CopyOp::create(
      commands, phase.getLoc(),
      commands.getArrayAttr({FlatSymbolRefAttr::get(source.buffer),
                             FlatSymbolRefAttr::get(target.buffer)}),
      ArrayRef<int64_t>{source.offset, target.offset},
      ArrayRef<int64_t>{source.stride, target.stride}, bytes);
}

// A new value that could not be written into its variable at once is copied
// there when the phase ends: until then the old value may still be read. A
// value that is stored in another variable is saved before that variable
// changes.
void PhaseLowering::lowerAssign(AssignOp assign) {
  Place source = places.lookup(root(assign.getValue())),
        target = variablePlace(assign.getVariable());
  if (source == target)
    return;
  int64_t bytes = getByteSize(assign.getValue().getType());
  if (source.buffer.getAlwaysLive()) {
    Place saved =
        addPlace(findOrigin(assign.getValue()), bytes, source.buffer.getHost());
    copy(source, saved, bytes);
    source = saved;
  }
  pendingCopies.push_back({source, target, bytes});
}

void PhaseLowering::lowerTransfer(TransferOp transfer) {
  int64_t bytes = getByteSize(transfer.getType());
  Place target = addPlace(findOrigin(transfer.getOperand()), bytes,
                          transfer.getMemory() == Memory::host);
  copy(places.lookup(root(transfer.getOperand())), target, bytes);
  places[transfer.getResult()] = target;
}

void PhaseLowering::lowerOutput(OutputOp output) {
  Place place = places.lookup(root(output.getValue()));
  auto buffer = exec::BufferOp::create(
      buffers, phase.getLoc(),
      ("output." + program + "." + output.getName()).str(),
      getByteSize(output.getValue().getType()), exec::BufferKind::output,
      /*always_live=*/true, /*host=*/false, nullptr);
  symbols.insert(buffer);
  copy(place, {buffer}, getByteSize(output.getValue().getType()));
  outputs.push_back(commands.getArrayAttr(
      {output.getNameAttr(), FlatSymbolRefAttr::get(buffer),
       TypeAttr::get(output.getValue().getType())}));
}

LogicalResult PhaseLowering::run() {
  placeInputs();
  findLastUses();
  for (Operation &op : phase.getBody().front()) {
    if (auto read = dyn_cast<ReadOp>(op))
      places[read.getResult()] = variablePlace(read.getVariable());
    else if (auto kernel = dyn_cast<KernelOp>(op)) {
      if (failed(lowerKernel(kernel)))
        return failure();
    } else if (auto assign = dyn_cast<AssignOp>(op))
      lowerAssign(assign);
    else if (auto output = dyn_cast<OutputOp>(op))
      lowerOutput(output);
    else if (auto transfer = dyn_cast<TransferOp>(op))
      lowerTransfer(transfer);
    else if (!lowerCollective(&op) && !isAlias(&op) && !isa<YieldOp>(op))
      return op.emitOpError(
          "is not inside a kernel: run -kiln-fuse-kernels first");
  }
  for (auto [source, target, bytes] : pendingCopies)
    copy(source, target, bytes);
  wait([](const Pieces &) { return true; });
  return success();
}

} // namespace kiln
