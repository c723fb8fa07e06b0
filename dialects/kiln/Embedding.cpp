// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of a table by id.
#include "dialects/kiln/Answers.h"

using namespace mlir;

namespace kiln {

static LogicalResult verifyRows(Operation *op, RankedTensorType ids,
                                RankedTensorType rows, RankedTensorType table) {
  SmallVector<int64_t> wanted(ids.getShape());
  if (table.getRank() != 2)
    return op->emitOpError("needs a table of rank 2, found ") << table;
  wanted.push_back(table.getDimSize(1));
  if (rows.getShape() != ArrayRef(wanted))
    return op->emitOpError("relates ids ")
           << ids << " and table " << table << " to rows " << rows;
  return success();
}

LogicalResult EmbeddingOp::verify() {
  if (tensorType(getTable()).getElementType() !=
      tensorType(getResult()).getElementType())
    return emitOpError("takes rows ")
           << getType() << " from table " << getTable().getType();
  return verifyRows(*this, cast<RankedTensorType>(getIds().getType()),
                    cast<RankedTensorType>(getType()),
                    cast<RankedTensorType>(getTable().getType()));
}

// y = table[ids]
Values EmbeddingOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Values result(getNumOperands());
  result[0] =
      EmbeddingGradOp::create(builder, getLoc(), accumulatorType(getTable()),
                              getIds(), grads[0], getFirst());
  return result;
}

// Letter of the rows: a shard of them is given by its first global index.
static constexpr char kRow = 'v';

template <typename Op> static void placeRows(Op op, PartPlace &place) {
  if (place.isCut(kRow))
    op.getFirstMutable().assign(place.getFirst(kRow));
}

StringRef EmbeddingOp::getContiguousFactors() { return StringRef(&kRow, 1); }

void EmbeddingOp::place(OpBuilder &, PartPlace &place) {
  placeRows(*this, place);
}

std::string EmbeddingOp::getFactors() {
  std::string ids = letters(getIds());
  return "vk," + ids + (getFirst() ? "," : "") + "->" + ids + "k";
}

ValueRange EmbeddingOp::getIndexedOperands() {
  return getOperation()->getOperands().slice(1, 1); // The ids.
}

// A shard of a table has code of its own.
bool EmbeddingOp::isFusable() { return !getFirst(); }

// Reads one row per id; the table may be far larger.
Work EmbeddingOp::getWork() {
  Work work;
  work.bytes = getByteSize(getIds().getType()) + 2 * getByteSize(getType());
  return work;
}

// The table is cleared, and a row of it read and written for each id.
Work EmbeddingGradOp::getWork() {
  auto grad = cast<RankedTensorType>(getGrad().getType());
  Work work;
  work.pointwise = grad.getNumElements();
  work.bytes = getByteSize(getIds().getType()) + 3 * getByteSize(grad) +
               getByteSize(getType());
  return work;
}

LogicalResult EmbeddingGradOp::verify() {
  return verifyRows(*this, cast<RankedTensorType>(getIds().getType()),
                    cast<RankedTensorType>(getGrad().getType()),
                    cast<RankedTensorType>(getType()));
}

std::string EmbeddingGradOp::getFactors() {
  std::string ids = letters(getIds());
  return ids + "," + ids + "k" + (getFirst() ? "," : "") + "->vk";
}

StringRef EmbeddingGradOp::getContiguousFactors() {
  return StringRef(&kRow, 1);
}

void EmbeddingGradOp::place(OpBuilder &, PartPlace &place) {
  placeRows(*this, place);
}

OperandGroups EmbeddingGradOp::getLinearGroups() { return {{1}}; }

} // namespace kiln
