// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves the optimizer state to the host, and the update with it. Moments, and
// masters of parameters, are in host memory. Ops that lead from a moment to its
// new value run there, and so do ops without other large operands. Little is
// then transferred: gradients to the host, and the change of each parameter
// back.
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Composer.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_OFFLOADOPTIMIZER
#include "compiler/pipeline/Passes.h.inc"

namespace {

/// Places the ops of an update on the device or on the host.
class Offloader {
public:
  explicit Offloader(Block &block) : block(block) {}

  void run();

private:
  VariableOp getVariable(FlatSymbolRefAttr name) {
    return SymbolTable::lookupNearestSymbolFrom<VariableOp>(block.getParentOp(),
                                                            name.getAttr());
  }
  void findNeeded();
  bool runsOnHost(Operation *op);
  void place(Operation *op);
  bool isOnHost(Value value) const { return onHost.contains(value); }
  Value findRoot(Value value);
  Value toHost(Value value, OpBuilder &builder);
  Value toDevice(Value value, OpBuilder &builder);

  Block &block;
  llvm::SmallPtrSet<Operation *, 32> needed; // For the new value of a moment.
  DenseSet<Value> onHost;
  DenseMap<Value, Value> hostCopies, deviceCopies;
};

struct OffloadOptimizerPass : impl::OffloadOptimizerBase<OffloadOptimizerPass> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto variable : getOperation().getOps<VariableOp>()) {
      if (variable.getRole() == Role::moment)
        variable.setHost(true);
      if (variable.getCopyOf())
        symbols.lookup<VariableOp>(*variable.getCopyOf()).setHost(true);
    }
    for (auto step : getOperation().getOps<StepOp>())
      Offloader(step.getUpdate().front()).run();
  }
};

} // namespace

static bool isLarge(Value value) { return tensorType(value).getRank() > 0; }

// Ops that can run anywhere: rematerialising them from scalars costs nothing.
static bool isMovable(Operation *op) {
  return isElementwise(op) || isa<ConstantOp>(op) ||
         (isMovement(op, Movement::repeat) && !isLarge(op->getOperand(0)));
}

void Offloader::findNeeded() {
  for (Operation &op : llvm::reverse(block)) {
    auto assign = dyn_cast<AssignOp>(op);
    bool isNeeded =
        assign ? getVariable(assign.getVariableAttr()).getHost()
               : isMovable(&op) && llvm::any_of(op.getUsers(), [&](auto *user) {
                   return needed.contains(user);
                 });
    if (isNeeded)
      needed.insert(&op);
  }
}

// The only large value that movable ops compute a value from; the value itself
// if there are several, null if it depends on scalars only.
Value Offloader::findRoot(Value value) {
  Operation *op = value.getDefiningOp();
  if (!isLarge(value))
    return Value();
  if (!op || !isMovable(op) || isOnHost(value))
    return value;
  Value root;
  for (Value operand : op->getOperands())
    if (Value other = findRoot(operand)) {
      if (root && root != other)
        return value;
      root = other;
    }
  return root;
}

Value Offloader::toHost(Value value, OpBuilder &builder) {
  if (isOnHost(value))
    return value;
  if (Value copy = hostCopies.lookup(value))
    return copy;
  Operation *op = value.getDefiningOp();
  Value copy;
  bool isRemade =
      op && isMovable(op) && isLarge(value) && findRoot(value) != value;
  bool isConstant = op && isMovable(op) && op->getNumOperands() == 0;
  if (isRemade || isConstant) {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, toHost(operand, builder));
    copy = builder.clone(*op, mapping)->getResult(0);
  } else {
    copy = Composer(builder, value.getLoc()).transfer(value, Memory::host);
  }
  onHost.insert(copy);
  return hostCopies[value] = copy;
}

Value Offloader::toDevice(Value value, OpBuilder &builder) {
  if (!isOnHost(value))
    return value;
  Value &copy = deviceCopies[value];
  if (!copy)
    copy = Composer(builder, value.getLoc()).transfer(value, Memory::device);
  return copy;
}

// An op with an operand on the host runs there if it is needed there, or if its
// other large operands are there, too.
bool Offloader::runsOnHost(Operation *op) {
  if (!isMovable(op) || llvm::none_of(op->getOperands(), [&](Value operand) {
        return isOnHost(operand);
      }))
    return false;
  return needed.contains(op) ||
         llvm::all_of(op->getOperands(), [&](Value operand) {
           Value root = findRoot(operand);
           return !root || isOnHost(root) || hostCopies.contains(root);
         });
}

void Offloader::place(Operation *op) {
  OpBuilder builder(op);
  bool isHost = runsOnHost(op);
  if (auto assign = dyn_cast<AssignOp>(op))
    isHost = getVariable(assign.getVariableAttr()).getHost();
  for (OpOperand &operand : op->getOpOperands())
    operand.set(isHost ? toHost(operand.get(), builder)
                       : toDevice(operand.get(), builder));
  if (auto read = dyn_cast<ReadOp>(op))
    isHost = getVariable(read.getVariableAttr()).getHost();
  if (isHost)
    onHost.insert_range(op->getResults());
}

void Offloader::run() {
  findNeeded();
  for (Operation &op : llvm::make_early_inc_range(block))
    place(&op);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace kiln
