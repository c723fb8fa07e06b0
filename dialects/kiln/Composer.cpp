// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/kiln/Composer.h"

#include "llvm/ADT/StringExtras.h"

#include <limits>

using namespace mlir;

namespace kiln {

bool isZero(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  auto constant = broadcast ? broadcast.getOperand().getDefiningOp<ConstantOp>()
                            : ConstantOp();
  return constant && constant.getValue().isZero();
}

std::string indexLetters(int64_t rank) {
  std::string letters;
  for (int64_t index = 0; index < rank; ++index)
    letters += char('a' + index);
  return letters;
}

Value Composer::constant(double value, Type elementType) {
  return ConstantOp::create(builder, loc,
                            RankedTensorType::get({}, elementType),
                            builder.getF64FloatAttr(value));
}

Value Composer::fill(double value, Value like) {
  return spread(constant(value, tensorType(like).getElementType()), like);
}

Value Composer::zeros(RankedTensorType type) {
  Value zero = constant(0, type.getElementType());
  if (type.getRank() == 0)
    return zero;
  return broadcast("->" + indexLetters(type.getRank()), zero, type);
}

#define KILN_COMPOSE_UNARY(name, op)                                           \
  Value Composer::name(Value x) { return op::create(builder, loc, x); }
KILN_COMPOSE_UNARY(negate, NegateOp)
KILN_COMPOSE_UNARY(exp, ExpOp)
KILN_COMPOSE_UNARY(log, LogOp)
KILN_COMPOSE_UNARY(tanh, TanhOp)
KILN_COMPOSE_UNARY(erf, ErfOp)
KILN_COMPOSE_UNARY(sqrt, SqrtOp)
KILN_COMPOSE_UNARY(rsqrt, RsqrtOp)
KILN_COMPOSE_UNARY(abs, AbsOp)
KILN_COMPOSE_UNARY(cos, CosOp)
KILN_COMPOSE_UNARY(sin, SinOp)
#undef KILN_COMPOSE_UNARY

#define KILN_COMPOSE_BINARY(name, op)                                          \
  Value Composer::name(Value x, Value y) {                                     \
    return op::create(builder, loc, x, y);                                     \
  }
KILN_COMPOSE_BINARY(add, AddOp)
KILN_COMPOSE_BINARY(sub, SubOp)
KILN_COMPOSE_BINARY(mul, MulOp)
KILN_COMPOSE_BINARY(div, DivOp)
KILN_COMPOSE_BINARY(maximum, MaximumOp)
KILN_COMPOSE_BINARY(minimum, MinimumOp)
#undef KILN_COMPOSE_BINARY

Value Composer::compare(Predicate predicate, Value x, Value y) {
  return CompareOp::create(
      builder, loc, tensorType(x).clone(builder.getI1Type()), predicate, x, y);
}

Value Composer::select(Value condition, Value x, Value y) {
  return SelectOp::create(builder, loc, x.getType(), condition, x, y);
}

Value Composer::convert(Value x, Type elementType) {
  return builder.createOrFold<ConvertOp>(loc, tensorType(x).clone(elementType),
                                         x);
}

Value Composer::widen(Value x) {
  return convert(x, accumulatorType(x).getElementType());
}

Value Composer::convertLike(Value x, Value like) {
  return convert(x, cast<RankedTensorType>(like.getType()).getElementType());
}

RankedTensorType Composer::inferType(StringRef equation, ValueRange operands) {
  auto [inputs, output] = equation.split("->");
  llvm::SmallDenseMap<char, int64_t> sizes;
  SmallVector<StringRef> terms;
  inputs.split(terms, ',');
  for (auto [term, operand] : llvm::zip_equal(terms, operands))
    for (auto [letter, size] :
         llvm::zip_equal(term, tensorType(operand).getShape()))
      sizes[letter] = size;
  SmallVector<int64_t> shape;
  for (char letter : output)
    shape.push_back(sizes.at(letter));
  return RankedTensorType::get(shape,
                               tensorType(operands.front()).getElementType());
}

Value Composer::broadcast(StringRef equation, Value x, RankedTensorType type) {
  return BroadcastOp::create(
      builder, loc, type.clone(tensorType(x).getElementType()), equation, x);
}

Value Composer::sum(StringRef equation, Value x) {
  x = widen(x);
  return SumOp::create(builder, loc, inferType(equation, x), equation, x);
}

Value Composer::max(StringRef equation, Value x) {
  return MaxOp::create(builder, loc, inferType(equation, x), equation, x);
}

Value Composer::transpose(StringRef equation, Value x) {
  return TransposeOp::create(builder, loc, inferType(equation, x), equation, x);
}

Value Composer::contract(StringRef equation, Value x, Value y) {
  RankedTensorType type = inferType(equation, {x, y});
  return ContractOp::create(builder, loc,
                            type.clone(accumulatorType(x).getElementType()),
                            equation, x, y);
}

Value Composer::spread(Value scalar, Value like) {
  RankedTensorType type = tensorType(like);
  if (type.getRank() == 0)
    return scalar;
  return broadcast("->" + indexLetters(type.getRank()), scalar, type);
}

Value Composer::spreadRows(Value rows, Value like) {
  std::string all = indexLetters(tensorType(like).getRank());
  return broadcast(all.substr(0, all.size() - 1) + "->" + all, rows,
                   tensorType(like));
}

Value Composer::spreadColumns(Value columns, Value like) {
  std::string all = indexLetters(tensorType(like).getRank());
  return broadcast(all.substr(all.size() - 1) + "->" + all, columns,
                   tensorType(like));
}

Value Composer::sumRows(Value x) {
  std::string all = indexLetters(tensorType(x).getRank());
  return sum(all + "->" + all.substr(0, all.size() - 1), x);
}

Value Composer::maxRows(Value x) {
  std::string all = indexLetters(tensorType(x).getRank());
  return max(all + "->" + all.substr(0, all.size() - 1), x);
}

Value Composer::sumColumns(Value x) {
  std::string all = indexLetters(tensorType(x).getRank());
  if (all.size() == 1)
    return x;
  return sum(all + "->" + all.substr(all.size() - 1), x);
}

Value Composer::sumAll(Value x) {
  if (tensorType(x).getRank() == 0)
    return x;
  return sum(indexLetters(tensorType(x).getRank()) + "->", x);
}

Value Composer::reshape(Value x, ArrayRef<int64_t> shape) {
  if (tensorType(x).getShape() == shape)
    return x;
  return ReshapeOp::create(
      builder, loc,
      RankedTensorType::get(shape, tensorType(x).getElementType()), x);
}

Value Composer::iota(int64_t size) {
  return IotaOp::create(builder, loc,
                        RankedTensorType::get({size}, builder.getI32Type()));
}

Value Composer::slice(Value x, int64_t dimension, int64_t offset,
                      int64_t size) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  shape[dimension] = size;
  return SliceOp::create(
      builder, loc,
      RankedTensorType::get(shape, tensorType(x).getElementType()), x,
      dimension, offset);
}

Value Composer::concatenate(ValueRange parts, int64_t dimension) {
  SmallVector<int64_t> shape(tensorType(parts.front()).getShape());
  shape[dimension] = 0;
  for (Value part : parts)
    shape[dimension] += tensorType(part).getDimSize(dimension);
  return ConcatenateOp::create(
      builder, loc,
      RankedTensorType::get(shape, tensorType(parts.front()).getElementType()),
      parts, dimension);
}

Value Composer::defer(Value x, Value until) {
  return DeferOp::create(builder, loc, x, until);
}

Value Composer::transfer(Value x, Memory memory) {
  return TransferOp::create(builder, loc, x, memory);
}

Value Composer::maskScores(Value scores, bool isCausal, Value lengths) {
  RankedTensorType type = tensorType(scores);
  RankedTensorType indices = type.clone(builder.getI32Type());
  Value key = broadcast("t->bhst", iota(type.getDimSize(3)), indices);
  Value hidden = fill(-std::numeric_limits<double>::infinity(), scores);
  if (isCausal) {
    Value query = broadcast("s->bhst", iota(type.getDimSize(2)), indices);
    scores = select(compare(Predicate::le, key, query), scores, hidden);
  }
  if (lengths) {
    Value end = broadcast("b->bhst", lengths, indices);
    Value seen = select(compare(Predicate::lt, key, end), scores, hidden);
    Value first =
        broadcast("->bhst", constant(0, builder.getI32Type()), indices);
    scores = select(compare(Predicate::eq, key, first), scores, seen);
  }
  return scores;
}

Value Composer::isLabel(Value labels, Value logits) {
  Value classes =
      spreadColumns(iota(tensorType(logits).getShape().back()), logits);
  Value wide = spreadRows(convert(labels, builder.getI32Type()), logits);
  return compare(Predicate::eq, wide, classes);
}

// A row without a label is never correct: its greatest logit is above minus
// infinity.
Value Composer::countCorrect(Value logits, Value labels) {
  Value lowest = fill(-std::numeric_limits<double>::infinity(), logits);
  Value own = maxRows(select(isLabel(labels, logits), logits, lowest));
  Value isCorrect = compare(Predicate::ge, own, maxRows(logits));
  return sumAll(convert(isCorrect, tensorType(logits).getElementType()));
}

} // namespace kiln
