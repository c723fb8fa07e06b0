// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns programs on tensors into commands on buffers. Variables and inputs have
// buffers of their own; every other value gets one, unless it can lie over an
// operand that dies, or in the variable that it is assigned to. Kernels that
// are alike become one.
#include "compiler/fuse/InPlace.h"
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Sharding.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace kiln::shard;

namespace kiln {

#define GEN_PASS_DEF_LOWERTOEXEC
#include "compiler/pipeline/Passes.h.inc"

namespace {

/// Where a value lies: `offset` + n * `stride` bytes into a buffer in
/// repetition n.
struct Place {
  exec::BufferOp buffer;
  int64_t offset = 0, stride = 0;

  bool operator==(const Place &other) const {
    return buffer == other.buffer && offset == other.offset &&
           stride == other.stride;
  }
};

/// What a collective moves: each whole tensor is [outer, size, inner], cut
/// along its middle dimension.
struct Pieces {
  SmallVector<Place> sources, targets;
  SmallVector<int64_t> outers, sizes, inners;
  Type element;

  void add(Place source, Place target, RankedTensorType whole,
           unsigned dimension, int64_t blocks, int64_t unit) {
    sources.push_back(source);
    targets.push_back(target);
    ArrayRef<int64_t> shape = whole.getShape();
    outers.push_back(llvm::product_of(shape.take_front(dimension), blocks));
    sizes.push_back(shape[dimension] / blocks / unit);
    inners.push_back(llvm::product_of(shape.drop_front(dimension + 1), unit));
    element = whole.getElementType();
  }
};

/// Kernels of the module by their text.
class KernelTable {
public:
  explicit KernelTable(ModuleOp module) : module(module) {}
  exec::KernelOp get(KernelOp kernel);

private:
  ModuleOp module;
  llvm::StringMap<exec::KernelOp> known;
};

class PhaseLowering {
public:
  PhaseLowering(PhaseOp phase, ModuleOp module, SymbolTable &symbols,
                KernelTable &kernels, OpBuilder commands, StringRef program,
                int64_t &tickets)
      : phase(phase), module(module), symbols(symbols), kernels(kernels),
        commands(commands), buffers(OpBuilder::atBlockEnd(module.getBody())),
        program(program.str()), mesh(getMesh(module)), tickets(tickets) {}

  LogicalResult run();
  SmallVector<Attribute> outputs;

private:
  void placeInputs();
  void findLastUses();
  LogicalResult lowerKernel(KernelOp kernel);
  template <typename Op> void lowerCutCollective(Op op);
  void lowerAllReduce(AllReduceOp op);
  void lowerAssign(AssignOp assign);
  void start(Operation *op, exec::CollectiveKind kind, ArrayAttr axes,
             const Pieces &pieces, bool isMax);
  void beforeRead(const Place &place);
  void beforeWrite(const Place &place);
  void wait(llvm::function_ref<bool(const Pieces &)> isWanted);
  Place placeCollected(Operation *op, unsigned index);
  void copy(Place source, Place target, int64_t bytes);
  void lowerOutput(OutputOp output);
  Place placeResult(KernelOp kernel, unsigned index,
                    ArrayRef<SmallVector<unsigned>> overwritable,
                    llvm::SmallBitVector &taken);
  std::optional<Place>
  placeInVariable(KernelOp kernel, unsigned index,
                  ArrayRef<SmallVector<unsigned>> overwritable);
  exec::BufferOp addBuffer(const Twine &name, int64_t bytes,
                           exec::BufferKind kind, bool isAlwaysLive);
  Place variablePlace(StringRef name) {
    return {symbols.lookup<exec::BufferOp>(("variable." + name).str())};
  }
  Operation *lastUse(Value value);
  Value root(Value value);

  PhaseOp phase;
  ModuleOp module;
  SymbolTable &symbols;
  KernelTable &kernels;
  OpBuilder commands, buffers;
  std::string program;
  DenseMap<Value, Place> places; // By root value.
  DenseMap<Value, Operation *> lastUses;
  SmallVector<std::tuple<Place, Place, int64_t>> pendingCopies;
  std::vector<std::pair<int64_t, Pieces>> running; // By ticket.
  Mesh mesh;
  int64_t &tickets; // Of the program.
  unsigned counter = 0;
};

struct LowerToExecPass : impl::LowerToExecBase<LowerToExecPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    KernelTable kernels(module);
    SmallVector<ProgramOp> programs(module.getOps<ProgramOp>());
    declareVariables(module, symbols);
    for (ProgramOp program : programs)
      if (failed(lower(program, symbols, kernels)))
        return signalPassFailure();
  }

  void declareVariables(ModuleOp module, SymbolTable &symbols);
  LogicalResult lower(ProgramOp program, SymbolTable &symbols,
                      KernelTable &kernels);
  ArrayAttr declareInputs(ProgramOp program, SymbolTable &symbols);
};

} // namespace

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

// What people call it: the op, or how many are fused and the most telling of
// them.
static std::string describe(Block &body) {
  std::string text;
  unsigned count = 0;
  StringRef telling;
  for (Operation &op : body.without_terminator()) {
    StringRef name = op.getName().stripDialect();
    ++count;
    if (telling.empty() ||
        isa<SumOp, MaxOp, EmbeddingOp, ContractOp, ExpOp, TanhOp, SqrtOp>(op))
      telling = name;
  }
  return count == 1 ? telling.str()
                    : "fused_" + telling.str() + "_" + std::to_string(count);
}

// Identity is the text of the body: ops, shapes and attributes, with values
// numbered from zero.
exec::KernelOp KernelTable::get(KernelOp kernel) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto copy =
      exec::KernelOp::create(builder, UnknownLoc::get(module.getContext()),
                             "kernel", 0, nullptr, nullptr);
  IRMapping mapping;
  kernel.getBody().cloneInto(&copy.getBody(), mapping);
  copy.walk(
      [&](Operation *op) { op->setLoc(UnknownLoc::get(module.getContext())); });
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy->print(stream, OpPrintingFlags().useLocalScope());
  auto [slot, isNew] = known.try_emplace(text);
  if (!isNew) {
    copy.erase();
    return slot->second;
  }
  auto digest = llvm::SHA256::hash(
      ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  copy.setSymName(describe(copy.getBody().front()) + "_" +
                  llvm::toHex(ArrayRef(digest).take_front(6), true));
  return slot->second = copy;
}

//===----------------------------------------------------------------------===//
// One phase
//===----------------------------------------------------------------------===//

// Whether the result lies where the first operand does.
static bool isAlias(Operation *op) { return isa<ReshapeOp, RecomputeOp>(op); }

// The value whose buffer an alias shares.
Value PhaseLowering::root(Value value) {
  while (value.getDefiningOp() && isAlias(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

void PhaseLowering::findLastUses() {
  Block &block = phase.getBody().front();
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

exec::BufferOp PhaseLowering::addBuffer(const Twine &name, int64_t bytes,
                                        exec::BufferKind kind,
                                        bool isAlwaysLive) {
  auto buffer = exec::BufferOp::create(buffers, phase.getLoc(), name.str(),
                                       bytes, kind, isAlwaysLive, nullptr);
  symbols.insert(buffer);
  return buffer;
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
  for (auto read : phase.getBody().front().getOps<ReadOp>()) {
    if (read.getVariable() != assign.getVariable())
      continue;
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
                                 llvm::SmallBitVector &taken) {
  if (auto place = placeInVariable(kernel, index, overwritable))
    return *place;
  Value result = kernel.getResult(index);
  for (unsigned input : overwritable[index]) {
    Value operand = kernel.getOperand(input);
    Place place = places.lookup(root(operand));
    bool dies = lastUse(operand) == kernel &&
                place.buffer.getKind() == exec::BufferKind::activation &&
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
  return {addBuffer(program + "." + phase.getName() + "." + Twine(counter++),
                    getByteSize(result.getType()), exec::BufferKind::activation,
                    false)};
}

static int64_t sumBytes(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types)
    bytes += getByteSize(type);
  return bytes;
}

// Bytes that a kernel must move at least: of a table only the rows that are
// looked up.
static int64_t countBytes(KernelOp kernel) {
  int64_t bytes =
      sumBytes(kernel.getOperandTypes()) + sumBytes(kernel.getResultTypes());
  kernel.walk([&](EmbeddingOp op) {
    bytes += getByteSize(op.getType()) - getByteSize(op.getTable().getType());
  });
  return bytes;
}

LogicalResult PhaseLowering::lowerKernel(KernelOp kernel) {
  SmallVector<SmallVector<unsigned>> overwritable =
      getOverwritableInputs(kernel.getBody().front());
  SmallVector<Attribute> names;
  SmallVector<int64_t> offsets, strides;
  auto pass = [&](Place place) {
    names.push_back(FlatSymbolRefAttr::get(place.buffer));
    offsets.push_back(place.offset);
    strides.push_back(place.stride);
  };
  llvm::SmallBitVector taken(kernel.getNumOperands());
  for (Value operand : kernel.getOperands()) {
    beforeRead(places.lookup(root(operand)));
    pass(places.lookup(root(operand)));
  }
  for (unsigned index = 0; index < kernel.getNumResults(); ++index) {
    Place place = placeResult(kernel, index, overwritable, taken);
    beforeWrite(place);
    places[kernel.getResult(index)] = place;
    pass(place);
  }
  int64_t flops = 0;
  kernel.walk([&](Costed op) { flops += op.getFlops(); });
  exec::KernelOp code = kernels.get(kernel);
  exec::LaunchOp::create(commands, kernel.getLoc(), code.getSymName(),
                         commands.getArrayAttr(names), offsets, strides,
                         kernel.getNumOperands(), code.getSymName(), flops,
                         countBytes(kernel));
  return success();
}

//===----------------------------------------------------------------------===//
// What devices do together
//===----------------------------------------------------------------------===//

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
}

// In the variable that it is assigned to, if nobody reads the old value later;
// otherwise a sum lies over its own terms if nobody else reads them.
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
      for (auto read : phase.getBody().front().getOps<ReadOp>())
        if (read.getVariable() == assign.getVariable())
          if (Operation *last = lastUse(read.getResult()))
            isReadLater |= last == op || op->isBeforeInBlock(last);
      if (!isReadLater)
        return variablePlace(assign.getVariable());
    }
  if (isa<AllReduceOp>(op)) {
    Value operand = op->getOperand(index);
    Place place = places.lookup(root(operand));
    // The sums of a step are not read after its last phase.
    auto read = root(operand).getDefiningOp<ReadOp>();
    bool isLastPhase =
        !phase->getNextNode() || !isa<PhaseOp>(phase->getNextNode());
    bool isFree = place.buffer.getKind() == exec::BufferKind::activation ||
                  (read && isLastPhase &&
                   place.buffer.getKind() == exec::BufferKind::gradient);
    if (isFree && lastUse(operand) == op &&
        llvm::count_if(op->getOperands(), [&](Value other) {
          return places.lookup(root(other)) == place;
        }) == 1)
      return place;
  }
  return {addBuffer(program + "." + phase.getName() + "." + Twine(counter++),
                    getByteSize(result.getType()), exec::BufferKind::activation,
                    false)};
}

void PhaseLowering::lowerAllReduce(AllReduceOp op) {
  Pieces pieces;
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

// What a variable is assigned and could not be written there at once is copied
// when the phase ends: until then its old value may still be read. A value that
// lies in another variable is saved before that changes in turn.
void PhaseLowering::lowerAssign(AssignOp assign) {
  Place source = places.lookup(root(assign.getValue())),
        target = variablePlace(assign.getVariable());
  if (source == target)
    return;
  int64_t bytes = getByteSize(assign.getValue().getType());
  if (source.buffer.getKind() != exec::BufferKind::activation) {
    Place saved{
        addBuffer(program + "." + phase.getName() + "." + Twine(counter++),
                  bytes, exec::BufferKind::activation, false)};
    copy(source, saved, bytes);
    source = saved;
  }
  pendingCopies.push_back({source, target, bytes});
}

void PhaseLowering::lowerOutput(OutputOp output) {
  Place place = places.lookup(root(output.getValue()));
  auto buffer = addBuffer("output." + program + "." + output.getName(),
                          getByteSize(output.getValue().getType()),
                          exec::BufferKind::output, true);
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
    else if (auto reduce = dyn_cast<AllReduceOp>(op))
      lowerAllReduce(reduce);
    else if (auto gather = dyn_cast<AllGatherOp>(op))
      lowerCutCollective(gather);
    else if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      lowerCutCollective(scatter);
    else if (auto slice = dyn_cast<AllSliceOp>(op))
      lowerCutCollective(slice);
    else if (!isAlias(&op) && !isa<YieldOp>(op))
      return op.emitOpError(
          "is not inside a kernel: run -kiln-fuse-kernels first");
  }
  for (auto [source, target, bytes] : pendingCopies)
    copy(source, target, bytes);
  wait([](const Pieces &) { return true; });
  return success();
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

void LowerToExecPass::declareVariables(ModuleOp module, SymbolTable &symbols) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  for (auto variable : llvm::to_vector(module.getOps<VariableOp>())) {
    auto kind = exec::BufferKind::variable;
    if (variable.isTransient())
      kind = variable.getRole() == Role::gradient ? exec::BufferKind::gradient
                                                  : exec::BufferKind::scratch;
    symbols.insert(exec::BufferOp::create(
        builder, variable.getLoc(), ("variable." + variable.getSymName()).str(),
        getByteSize(variable.getTensorType()), kind, true, nullptr));
  }
}

// An input holds the whole batch: phases that repeat see slices of it.
ArrayAttr LowerToExecPass::declareInputs(ProgramOp program,
                                         SymbolTable &symbols) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  SmallVector<Attribute> inputs;
  llvm::StringSet<> seen;
  bool isFunction = false;
  program.walk([&](PhaseOp phase) { isFunction |= phase.getName() == "call"; });
  program.walk([&](PhaseOp phase) {
    for (auto [name, argument] :
         llvm::zip(phase.getInputs(), phase.getBody().getArguments())) {
      StringRef key = cast<StringAttr>(name).getValue();
      if (!seen.insert(key).second)
        continue;
      auto type = cast<RankedTensorType>(argument.getType());
      SmallVector<int64_t> shape(type.getShape());
      if (!isFunction)
        shape.front() = program.getBatch();
      auto whole = RankedTensorType::get(shape, type.getElementType());
      std::string symbol = ("input." + program.getSymName() + "." + key).str();
      auto add = [&](const Twine &name, exec::BufferKind kind) {
        auto buffer =
            exec::BufferOp::create(builder, program.getLoc(), name.str(),
                                   getByteSize(whole), kind, true, nullptr);
        symbols.insert(buffer);
        return FlatSymbolRefAttr::get(buffer);
      };
      auto buffer = add(symbol, exec::BufferKind::input);
      auto staging = isFunction
                         ? buffer
                         : add("staging." + symbol, exec::BufferKind::staging);
      inputs.push_back(
          builder.getArrayAttr({name, buffer, staging, TypeAttr::get(whole)}));
    }
  });
  return builder.getArrayAttr(inputs);
}

LogicalResult LowerToExecPass::lower(ProgramOp program, SymbolTable &symbols,
                                     KernelTable &kernels) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  ArrayAttr inputs = declareInputs(program, symbols);
  std::string name = program.getSymName().str();
  auto lowered = exec::ProgramOp::create(builder, program.getLoc(), name,
                                         program.getBatch(), inputs,
                                         builder.getArrayAttr({}));
  OpBuilder phases = OpBuilder::atBlockEnd(&lowered.getBody().emplaceBlock());
  SmallVector<Attribute> outputs;
  int64_t tickets = 0;
  for (auto phase :
       llvm::to_vector(program.getBody().front().getOps<PhaseOp>())) {
    auto target = exec::PhaseOp::create(phases, phase.getLoc(), phase.getName(),
                                        phase.getRepeat());
    OpBuilder commands =
        OpBuilder::atBlockEnd(&target.getBody().emplaceBlock());
    PhaseLowering lowering(phase, getOperation(), symbols, kernels, commands,
                           name, tickets);
    if (failed(lowering.run()))
      return failure();
    outputs.append(lowering.outputs);
  }
  lowered.setOutputsAttr(builder.getArrayAttr(outputs));
  program.erase();
  return success();
}

} // namespace kiln
