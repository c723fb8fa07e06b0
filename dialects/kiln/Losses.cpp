// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Softmax and the losses based on it.
#include "dialects/kiln/Answers.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace kiln {

Values SoftmaxOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getOperand();
  Value e = c.exp(c.sub(x, c.spreadRows(c.maxRows(x), x)));
  return {c.div(e, c.spreadRows(c.sumRows(e), x))};
}

// y = softmax x, so dx = y (g - sum(g y))
Values SoftmaxOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value y = getResult(), g = grads[0];
  return {c.mul(y, c.sub(g, c.spreadRows(c.sumRows(c.mul(g, y)), y)))};
}

std::string SoftmaxOp::getFactors() {
  std::string rows = rowsOf(getOperand());
  return rows + "X->" + rows + "X";
}

static LogicalResult verifyLabels(Operation *op, RankedTensorType rows,
                                  RankedTensorType labels) {
  if (rows.getRank() < 1 || rows.getShape().drop_back() != labels.getShape())
    return op->emitOpError("has rows ")
           << rows << " and labels " << labels
           << "; labels need the shape of the rows without the last dimension";
  return success();
}

LogicalResult SoftmaxCrossEntropyOp::verify() {
  if (cast<RankedTensorType>(getType()).getRank() != 0)
    return emitOpError("makes a scalar, but its type is ") << getType();
  if (getElementTypeOrSelf(getLogits().getType()) !=
      getElementTypeOrSelf(getType()))
    return emitOpError("turns ")
           << getLogits().getType() << " into " << getType()
           << "; wanted one type of elements";
  return verifyLabels(*this, cast<RankedTensorType>(getLogits().getType()),
                      cast<RankedTensorType>(getLabels().getType()));
}

static Value oneHot(Composer &c, Value labels, Value like) {
  return c.convert(c.isLabel(labels, like), tensorType(like).getElementType());
}

// A row without a label is ignored: `hot` sums to 0 there, else to 1.
Values SoftmaxCrossEntropyOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getLogits();
  Value shifted = c.sub(x, c.spreadRows(c.maxRows(x), x));
  Value lse = c.log(c.sumRows(c.exp(shifted)));
  Value hot = oneHot(c, getLabels(), x);
  Value picked = c.sumRows(c.mul(shifted, hot));
  return {c.sumAll(c.sub(c.mul(lse, c.sumRows(hot)), picked))};
}

// total = sum of -log softmax(x)[label], so dx = g (softmax(x) - onehot(label))
// in rows that have a label.
Values SoftmaxCrossEntropyOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value x = getLogits();
  Value softmax = SoftmaxOp::create(builder, getLoc(), x);
  Value classes = c.spreadColumns(c.iota(tensorType(x).getShape().back()), x);
  Value labels = c.convert(getLabels(), builder.getI32Type());
  Value isLabel = c.compare(Predicate::eq, c.spreadRows(labels, x), classes);
  Value hot = c.convert(isLabel, tensorType(x).getElementType());
  Value hasLabel = c.spreadRows(c.sumRows(hot), x);
  Value difference = c.sub(c.mul(softmax, hasLabel), hot);
  return {c.mul(difference, c.spread(grads[0], x)), Value()};
}

std::string SoftmaxCrossEntropyOp::getFactors() {
  std::string rows = rowsOf(getLogits());
  return rows + "X," + rows + "->";
}

LogicalResult HeadLossOp::verify() {
  auto x = cast<RankedTensorType>(getX().getType());
  auto weight = cast<RankedTensorType>(getWeight().getType());
  if (weight.getRank() != 2 || x.getRank() < 1 ||
      weight.getDimSize(1) != x.getShape().back())
    return emitOpError("contracts rows of ") << x << " with rows of " << weight;
  bool areValues =
      !hasGradients() ||
      (getGradients().size() == 2 && haveSameShape(getGradients()[0], getX()) &&
       haveSameShape(getGradients()[1], getWeight()));
  if (!areValues || getTotal().getType() != getCorrect().getType() ||
      cast<RankedTensorType>(getTotal().getType()).getRank() != 0)
    return emitOpError("must have two scalars as results, and perhaps "
                       "gradients of the shapes of x and weight");
  return verifyLabels(*this, x, cast<RankedTensorType>(getLabels().getType()));
}

bool HeadLossOp::isStatistic(Value value) {
  return value == getTotal() || value == getCorrect();
}

bool HeadLossOp::isGradient(Value value) {
  return llvm::is_contained(getGradients(), value);
}

LogicalResult HeadLossOp::canonicalize(HeadLossOp op,
                                       PatternRewriter &rewriter) {
  bool isRead = llvm::any_of(op.getGradients(),
                             [](Value grad) { return !grad.use_empty(); });
  if (!op.hasGradients() || isRead)
    return failure();
  Type scalar = op.getTotal().getType();
  auto smaller =
      HeadLossOp::create(rewriter, op.getLoc(), scalar, scalar, TypeRange(),
                         op.getX(), op.getWeight(), op.getLabels());
  rewriter.replaceAllUsesWith(op.getTotal(), smaller.getTotal());
  rewriter.replaceAllUsesWith(op.getCorrect(), smaller.getCorrect());
  rewriter.eraseOp(op);
  return success();
}

Values HeadLossOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Value x = getX();
  int64_t rank = tensorType(x).getRank();
  std::string rows = indexLetters(rank - 1);
  std::string logitsEquation = rows + "x,vx->" + rows + "v";
  Value logits = c.contract(logitsEquation, x, getWeight());
  Value shifted = c.sub(logits, c.spreadRows(c.maxRows(logits), logits));
  Value e = c.exp(shifted);
  Value sum = c.sumRows(e);
  Value hot = oneHot(c, getLabels(), logits);
  Value hasLabel = c.sumRows(hot);
  Value total = c.sumAll(
      c.sub(c.mul(c.log(sum), hasLabel), c.sumRows(c.mul(shifted, hot))));
  // Unused in training; the sharding pass then need not handle it.
  Value correct = getCorrect().use_empty()
                      ? c.constant(0, tensorType(getCorrect()).getElementType())
                      : c.countCorrect(logits, getLabels());
  if (!hasGradients())
    return {total, correct};
  Value dlogits = c.sub(c.mul(e, c.spreadRows(c.div(hasLabel, sum), e)), hot);
  dlogits = c.convert(dlogits, tensorType(x).getElementType());
  Value dx = c.contract(rows + "v,vx->" + rows + "x", dlogits, getWeight()),
        dw = c.contract(rows + "v," + rows + "x->vx", dlogits, x);
  return {total, correct, c.convertLike(dx, getGradients()[0]),
          c.convertLike(dw, getGradients()[1])};
}

// In chunks of the sequence, so that the logits of a vocabulary shard are never
// all materialised at once.
Values HeadLossOp::decomposeForParts(OpBuilder &builder,
                                     ArrayRef<RankedTensorType> parts) {
  constexpr int64_t kChunkElements = 1 << 20; // Logits of a sample.
  constexpr int64_t kMostChunks = 16;
  RankedTensorType type = tensorType(getX());
  if (type.getRank() != 3)
    return decompose(builder);
  int64_t sequence = type.getDimSize(1);
  int64_t rows = parts[1].getDimSize(0);
  int64_t chunks = std::min<int64_t>(
      {kMostChunks, sequence,
       int64_t(llvm::divideCeil(sequence * rows, kChunkElements))});
  if (chunks <= 1)
    return decompose(builder);
  Composer c(builder, getLoc());
  int64_t size = llvm::divideCeil(sequence, chunks);
  Type scalar = getTotal().getType();
  Value total, correct, dw;
  auto add = [&](Value sum, Value part) {
    return sum ? c.add(sum, part) : part;
  };
  Values dx;
  for (int64_t first = 0; first < sequence; first += size) {
    int64_t length = std::min(size, sequence - first);
    Value x = c.slice(getX(), 1, first, length);
    if (dw) // Otherwise the gradients of all chunks would be live at once.
      x = DeferOp::create(builder, getLoc(), x, dw);
    SmallVector<Type> gradients;
    if (hasGradients())
      gradients = {
          tensorType(x).clone(tensorType(getGradients()[0]).getElementType()),
          accumulatorType(getGradients()[1])};
    auto head =
        HeadLossOp::create(builder, getLoc(), scalar, scalar, gradients, x,
                           getWeight(), c.slice(getLabels(), 1, first, length));
    total = add(total, head.getTotal());
    correct = add(correct, head.getCorrect());
    if (!hasGradients())
      continue;
    dx.push_back(head.getGradients()[0]);
    dw = add(dw, head.getGradients()[1]);
  }
  if (!hasGradients())
    return {total, correct};
  return {total, correct, c.concatenate(dx, 1),
          c.convertLike(dw, getGradients()[1])};
}

// Logits, and dx and dw.
Work HeadLossOp::getWork() {
  auto weight = tensorType(getWeight());
  int64_t tokens = tensorType(getLabels()).getNumElements(),
          vocabulary = weight.getDimSize(0), width = weight.getDimSize(1);
  Type element = weight.getElementType();
  Work work;
  work.products.emplace_back(1, tokens, vocabulary, width, element);
  if (hasGradients()) {
    work.products.emplace_back(1, tokens, width, vocabulary, element);
    work.products.emplace_back(1, vocabulary, width, tokens, element);
  }
  work.pointwise = 5 * tokens * vocabulary;
  work.bytes = getStreamedBytes(*this);
  return work;
}

// The op has already computed the gradients of its total.
Values HeadLossOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  bool isOfTotal = grads[0] && llvm::none_of(grads.drop_front(), [](Value g) {
                     return bool(g); // Counts and gradients have none.
                   });
  if (!isOfTotal || !hasGradients())
    return {};
  auto scale = [&](Value grad) {
    Value wide = c.convertLike(grad, grads[0]);
    return c.mul(wide, c.spread(grads[0], wide));
  };
  return {scale(getGradients()[0]), scale(getGradients()[1]), Value()};
}

std::string HeadLossOp::getFactors() {
  std::string rows = rowsOf(getX());
  std::string scalars = rows + "X,VX," + rows + "->,";
  return hasGradients() ? scalars + "," + rows + "X,VX" : scalars;
}

} // namespace kiln
