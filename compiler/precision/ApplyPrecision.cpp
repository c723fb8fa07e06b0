// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gives a model written in f32 the element types of a precision policy. A value
// is rounded where it is made, whatever reads it, so that its value depends
// neither on fusion nor on recomputation. Differentiation rounds gradients of
// activations at the same points, because the gradient of a conversion is a
// conversion.
#include "compiler/pipeline/Passes.h"
#include "dialects/kiln/Composer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_APPLYPRECISION
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct Types {
  Type parameters, compute, activations, gradients;
  Type master; // Null: parameters have none.
};

/// Rewrites one function.
class Rounder {
public:
  Rounder(func::FuncOp function, const Types &types)
      : function(function), types(types), builder(function.getContext()),
        wide(builder.getF32Type()) {}

  void run();

private:
  /// What a value of the f32 program has become: as it is stored, and converted
  /// to other types where a reader wanted one.
  struct Forms {
    Value stored;
    SmallVector<Value, 2> converted;
  };

  void visitArgument(BlockArgument argument);
  void visit(Operation *op);
  void visitAccumulating(Operation *op);
  bool visitMovement(Operation *op);
  Value get(Value value, Type element);
  Type storedType(Value value) {
    return tensorType(find(value).stored).getElementType();
  }
  Forms &find(Value value);
  void store(Value value, Type element);
  Value convertAfter(Value value, Type element);
  void readAs(Operation *op, Type element);

  func::FuncOp function;
  const Types &types;
  OpBuilder builder;
  Type wide;
  llvm::SmallPtrSet<Operation *, 32> rounded;
  DenseMap<Value, Forms> forms;
};

struct ApplyPrecisionPass : impl::ApplyPrecisionBase<ApplyPrecisionPass> {
  using ApplyPrecisionBase::ApplyPrecisionBase;

  void runOnOperation() override;

private:
  Type parse(StringRef word);
  LogicalResult replaceAll();
  void addWorkingCopies(const Types &types);

  bool isFailed = false;
};

} // namespace

static bool isFloat32(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32();
}

// Of f32 in the model, also if it is narrow by now. What a model from a file
// computes in f64 stays so.
static bool hasPolicy(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  return element.isF32() || isNarrow(element);
}

static bool isActivation(Value value) {
  return isFloat32(value) && !tensorType(value).hasStaticShape();
}

// A term of a sum is not kept: the backward pass does not read it.
static bool isTerm(Value value) {
  return value.hasOneUse() && isElementwiseSum(*value.getUsers().begin());
}

// Ops that only move elements have nothing to round, save for a lookup in a
// table; sums are f32 by intent.
static bool isRounded(Operation *op) {
  if (isMovement(op, Movement::lookup))
    return true;
  return !isa<Rearranging, ConvertOp>(op) && !isSum(op) &&
         !isTerm(op->getResult(0));
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Rounder::Forms &Rounder::find(Value value) {
  Forms &found = forms[value];
  if (!found.stored)
    found.stored = value;
  return found;
}

// Right after the value, so that readers share it. Conversions belong to the op
// that made the value, and to its layer.
Value Rounder::convertAfter(Value value, Type element) {
  Operation *maker = value.getDefiningOp();
  if (maker)
    builder.setInsertionPointAfter(maker);
  else
    builder.setInsertionPointToStart(&function.front());
  Value converted = Composer(builder, value.getLoc()).convert(value, element);
  if (maker)
    converted.getDefiningOp()->setDiscardableAttrs(
        maker->getDiscardableAttrDictionary());
  return converted;
}

Value Rounder::get(Value value, Type element) {
  Forms &found = find(value);
  if (storedType(value) == element)
    return found.stored;
  for (Value known : found.converted)
    if (tensorType(known).getElementType() == element)
      return known;
  Value from = found.stored;
  bool isDirect = element == wide || storedType(value) == wide;
  if (!isDirect)
    from = get(value, wide);
  Value made = convertAfter(from, element);
  find(value).converted.push_back(made);
  return made;
}

// Readers that come later see `value` through what is stored of it.
void Rounder::store(Value value, Type element) {
  Value stored = convertAfter(value, element);
  forms[value].stored = stored;
}

void Rounder::readAs(Operation *op, Type element) {
  for (OpOperand &operand : op->getOpOperands())
    if (hasPolicy(operand.get()))
      operand.set(get(operand.get(), element));
}

void Rounder::visitArgument(BlockArgument argument) {
  bool isParameter =
      bool(function.getArgAttr(argument.getArgNumber(), kVariableAttribute));
  if (isParameter && isFloat32(argument))
    argument.setType(tensorType(argument).clone(types.parameters));
  else if (isActivation(argument) && types.activations != wide)
    store(argument, types.activations);
}

// Moves elements of one type as they are.
bool Rounder::visitMovement(Operation *op) {
  if (!isa<Rearranging>(op) || op->getNumOperands() == 0)
    return false;
  std::optional<Type> moved;
  for (Value operand : op->getOperands()) {
    if (!hasPolicy(operand))
      continue;
    Type element = storedType(operand);
    if (moved && *moved != element)
      return false;
    moved = element;
  }
  if (!moved)
    return false;
  readAs(op, *moved);
  Value result = op->getResult(0);
  result.setType(tensorType(result).clone(*moved));
  find(result);
  return true;
}

void Rounder::visitAccumulating(Operation *op) {
  auto accumulating = cast<Accumulating>(op);
  Type element = types.compute;
  if (!accumulating.multiplies()) {
    element = storedType(op->getOperand(0));
    if (!isNarrow(element))
      element = wide;
  }
  for (OpOperand &operand : op->getOpOperands())
    if (hasPolicy(operand.get()) && !accumulating.isStatistic(operand.get()))
      operand.set(get(operand.get(), element));
  for (Value result : op->getResults()) {
    if (accumulating.isStatistic(result))
      continue;
    if (!isActivation(result)) {
      // Not f16: sums over samples that are not scaled yet can exceed it.
      if (accumulating.isGradient(result) && types.gradients == element &&
          element.isBF16())
        result.setType(tensorType(result).clone(element));
      continue;
    }
    if (types.activations == element)
      result.setType(tensorType(result).clone(element));
    else if (types.activations != wide)
      store(result, types.activations);
  }
}

void Rounder::visit(Operation *op) {
  if (isa<Accumulating>(op))
    return visitAccumulating(op);
  bool isMoved = visitMovement(op);
  if (!isMoved)
    readAs(op, wide);
  // Further results are statistics.
  if (rounded.contains(op) && isActivation(op->getResult(0)))
    store(op->getResult(0), types.activations);
}

void Rounder::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : function.front().without_terminator())
    ops.push_back(&op);
  // Before conversions become readers.
  if (types.activations != wide)
    for (Operation *op : ops)
      if (op->getNumResults() > 0 && isRounded(op))
        rounded.insert(op);
  for (BlockArgument argument : function.getArguments())
    visitArgument(argument);
  for (Operation *op : ops)
    visit(op);
  readAs(function.front().getTerminator(), wide);
  function.setType(builder.getFunctionType(function.front().getArgumentTypes(),
                                           function.getResultTypes()));
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

Type ApplyPrecisionPass::parse(StringRef word) {
  Builder builder(&getContext());
  if (word == "f32")
    return builder.getF32Type();
  if (word == "bf16")
    return builder.getBF16Type();
  if (word == "f16")
    return builder.getF16Type();
  if (word == "f64" || word == "none")
    return word == "f64" ? Type(builder.getF64Type()) : Type();
  getOperation().emitError("knows no element type '")
      << word << "'; wanted f32, f64, bf16 or f16";
  isFailed = true;
  return Type();
}

// Of values, of variables and of the signatures of functions.
LogicalResult ApplyPrecisionPass::replaceAll() {
  Type to = parse(all);
  if (isFailed)
    return failure();
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](Float32Type) { return to; });
  getOperation().walk([&](Operation *op) {
    replacer.replaceElementsIn(op, /*replaceAttrs=*/true,
                               /*replaceLocs=*/false, /*replaceTypes=*/true);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setType(replacer.replace(argument.getType()));
  });
  return success();
}

static std::string nameWorkingCopy(StringRef parameter) {
  return (parameter + ".working").str();
}

// Beside each parameter, of the type that forward and backward read.
void ApplyPrecisionPass::addWorkingCopies(const Types &types) {
  for (auto variable : llvm::to_vector(getOperation().getOps<VariableOp>())) {
    RankedTensorType type = variable.getTensorType();
    if (variable.getRole() != Role::parameter || !type.getElementType().isF32())
      continue;
    if (!types.master) {
      variable.setType(type.clone(types.parameters));
      continue;
    }
    variable.setType(type.clone(types.master));
    if (types.master == types.parameters)
      continue;
    OpBuilder builder(variable->getContext());
    builder.setInsertionPointAfter(variable);
    auto copy = VariableOp::create(builder, variable.getLoc(),
                                   nameWorkingCopy(variable.getSymName()),
                                   type.clone(types.parameters), Role::working);
    copy.setShardingAttr(variable.getShardingAttr());
    copy.setCopyOfAttr(FlatSymbolRefAttr::get(variable));
  }
}

// Arguments read working copies where there are some.
static void readWorkingCopies(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  for (unsigned number = 0; number < function.getNumArguments(); ++number) {
    auto name = function.getArgAttrOfType<FlatSymbolRefAttr>(
        number, kVariableAttribute);
    if (!name)
      continue;
    std::string copy = nameWorkingCopy(name.getValue());
    if (module.lookupSymbol<VariableOp>(copy))
      function.setArgAttr(number, kVariableAttribute,
                          FlatSymbolRefAttr::get(function.getContext(), copy));
  }
}

static void markGradients(func::FuncOp function, const Types &types) {
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kVariableAttribute) &&
        tensorType(argument).getElementType() == types.parameters &&
        types.parameters != types.gradients)
      function.setArgAttr(argument.getArgNumber(), kGradientTypeAttribute,
                          TypeAttr::get(types.gradients));
}

void ApplyPrecisionPass::runOnOperation() {
  if (!all.empty()) {
    if (failed(replaceAll()))
      signalPassFailure();
    return;
  }
  Types types = {parse(parameters), parse(compute), parse(activations),
                 parse(gradients), parse(master)};
  Type messageType = parse(messages), momentType = parse(moments);
  if (isFailed)
    return signalPassFailure();
  addWorkingCopies(types);
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    bool isLoss = function->hasAttr(kLossAttribute);
    if (!isLoss && !function->hasAttr(kEvaluationAttribute))
      continue;
    Rounder(function, types).run();
    readWorkingCopies(function);
    if (isLoss)
      markGradients(function, types);
  }
  Builder builder(&getContext());
  SmallVector<NamedAttribute> parts = {
      builder.getNamedAttr("messages", TypeAttr::get(messageType)),
      builder.getNamedAttr("moments", TypeAttr::get(momentType))};
  if (lossScale > 0) {
    parts.push_back(builder.getNamedAttr(kLossScalePart,
                                         builder.getF64FloatAttr(lossScale)));
    parts.push_back(builder.getNamedAttr(
        kGrowthStepsPart, builder.getI64IntegerAttr(growthSteps)));
  }
  getOperation()->setAttr(kPrecisionAttribute,
                          builder.getDictionaryAttr(parts));
}

} // namespace kiln
