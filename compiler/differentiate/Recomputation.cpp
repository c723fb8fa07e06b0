// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/differentiate/Recomputation.h"
#include "dialects/kiln/Composer.h"
#include "dialects/kiln/Origin.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace kiln {

Recomputation::Recomputation(ArrayRef<Operation *> forward, StringRef what)
    : forward(forward), isForward(forward.begin(), forward.end()),
      isOn(what != "none"), isAttentionOnly(what == "attention"),
      last(forward.empty() ? nullptr : forward.back()) {}

void Recomputation::follow(Operation *end, Value gradient) {
  for (Operation *op = last->getNextNode(); op != end; op = op->getNextNode())
    readers.push_back({op, gradient});
  last = end->getPrevNode();
}

Attribute Recomputation::layerOf(Operation *op) const {
  return isForward.contains(op) ? op->getAttr(kLayerAttribute) : Attribute();
}

// Values read outside their layer are kept for that reader.
bool Recomputation::isMadeAgain(Value value) const {
  Operation *maker = value.getDefiningOp();
  Attribute layer = maker ? layerOf(maker) : Attribute();
  if (!layer || (isAttentionOnly && !maker->hasAttr(kAttentionAttribute)))
    return false;
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    bool isEnd = user->hasTrait<OpTrait::IsTerminator>();
    return !isEnd && (!isForward.contains(user) || layerOf(user) == layer);
  });
}

// A conversion to a wider type is fused into its readers: the narrow operand is
// the tensor that is kept.
static bool isWidening(Operation *op) {
  return op && isElementwise(op) && op->getNumOperands() == 1 &&
         tensorType(op->getOperand(0)).getElementTypeBitWidth() <
             tensorType(op->getResult(0)).getElementTypeBitWidth();
}

// Parameters, and values computed from them alone, are kept in any case.
Value Recomputation::enter(Value value, Attribute layer, const Reader &reader) {
  if (tensorType(value).hasStaticShape())
    return value;
  Value &known = entered[{value, layer}];
  if (known)
    return known;
  OpBuilder builder(reader.op);
  Operation *maker = value.getDefiningOp();
  Composer c(builder, reader.op->getLoc());
  if (!isWidening(maker))
    return known = c.defer(value, reader.gradient);
  IRMapping mapping;
  mapping.map(maker->getOperand(0),
              c.defer(maker->getOperand(0), reader.gradient));
  return known = builder.clone(*maker, mapping)->getResult(0);
}

FailureOr<Value> Recomputation::makeAgain(Value value, const Reader &reader) {
  if (Value known = clones.lookup(value))
    return known;
  Operation *maker = value.getDefiningOp();
  if (!isMemoryEffectFree(maker))
    return maker->emitOpError(
        "reads or assigns a variable; wanted a pure op, because its layer is "
        "computed again for the backward pass");
  IRMapping mapping;
  for (Value operand : maker->getOperands()) {
    FailureOr<Value> given = isMadeAgain(operand)
                                 ? makeAgain(operand, reader)
                                 : enter(operand, layerOf(maker), reader);
    if (failed(given))
      return failure();
    mapping.map(operand, *given);
  }
  Operation *clone = OpBuilder(reader.op).clone(*maker, mapping);
  clone->setLoc(
      withOrigin(clone->getLoc(), kPassAttribute,
                 StringAttr::get(clone->getContext(), kRecomputedPass)));
  for (auto [result, again] :
       llvm::zip_equal(maker->getResults(), clone->getResults()))
    clones[result] = again;
  return clones[value];
}

LogicalResult Recomputation::run() {
  for (const Reader &reader : isOn ? ArrayRef(readers) : ArrayRef<Reader>())
    for (OpOperand &operand : reader.op->getOpOperands()) {
      if (!isMadeAgain(operand.get()))
        continue;
      FailureOr<Value> again = makeAgain(operand.get(), reader);
      if (failed(again))
        return failure();
      operand.set(*again);
    }
  if (!forward.empty())
    for (Operation &op : *forward.front()->getBlock())
      for (StringRef mark : {kLayerAttribute, kAttentionAttribute})
        op.removeAttr(mark);
  return success();
}

} // namespace kiln
