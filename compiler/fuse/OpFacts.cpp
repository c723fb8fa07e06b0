// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/fuse/OpFacts.h"
#include "compiler/fuse/KernelDomain.h"

using namespace mlir;

namespace kiln {

size_t hashStructure(ArrayRef<Operation *> ops) {
  llvm::SmallDenseMap<Value, unsigned, 32> numbers;
  llvm::hash_code hash(ops.size());
  for (Operation *op : ops) {
    hash = llvm::hash_combine(hash, op->getName().getAsOpaquePointer(),
                              op->hashProperties(), op->getNumResults());
    for (Value operand : op->getOperands()) {
      unsigned number =
          numbers.try_emplace(operand, numbers.size()).first->second;
      hash = llvm::hash_combine(hash, number,
                                operand.getType().getAsOpaquePointer());
    }
    for (Value result : op->getResults()) {
      hash = llvm::hash_combine(hash, result.getType().getAsOpaquePointer());
      numbers.try_emplace(result, numbers.size());
    }
  }
  return hash;
}

static int64_t countElements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

static bool isExpanding(Operation *op) {
  if (isMovement(op, Movement::lookup))
    return false;
  int64_t read = 0;
  for (Value operand : op->getOperands())
    read += getByteSize(operand.getType());
  return getByteSize(op->getResult(0).getType()) > read;
}

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

static std::optional<ArrayRef<int64_t>> findUniformShape(Operation *op) {
  auto structured = dyn_cast<Structured>(op);
  if (!structured || structured.getReduction() != Reduction::none)
    return std::nullopt;
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(op->getResult(0).getType()).getShape();
  for (auto [map, type] : llvm::zip(
           structured.getLoopMaps(),
           llvm::concat<const Type>(llvm::to_vector(op->getOperandTypes()),
                                    llvm::to_vector(op->getResultTypes()))))
    if (cast<RankedTensorType>(type).getRank() > 0 && !map.isIdentity())
      return std::nullopt;
  return shape;
}

const OpFacts &OpFactTable::get(Operation *op) {
  auto [slot, isNew] = known.try_emplace(hashStructure(op));
  OpFacts &facts = slot->second;
  if (!isNew)
    return facts;
  facts.isScalar = isScalar(op);
  facts.largest = countLargest(op);
  facts.isFusable = needsKernel(op) && isFusable(op);
  if (facts.isFusable) {
    facts.isExpanding = isExpanding(op);
    facts.hasUnusualRows = hasUnusualRows(op);
    facts.uniformShape = findUniformShape(op);
  }
  return facts;
}

} // namespace kiln
