// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ops whose indexing is an equation such as "bsk,kn->bsn".
#include "dialects/kiln/Answers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace kiln {

// "bsk,kn->bsn": loop dimensions are numbered as letters first occur in the
// result, then in the operands, so that the dimensions summed over come last.
static SmallVector<AffineMap> parseEquation(StringRef equation,
                                            MLIRContext *context) {
  auto [inputs, output] = equation.split("->");
  SmallVector<char> letters;
  for (char letter : (output + inputs).str())
    if (letter != ',' && !llvm::is_contained(letters, letter))
      letters.push_back(letter);
  SmallVector<StringRef> terms;
  inputs.split(terms, ',');
  terms.push_back(output);
  SmallVector<AffineMap> maps;
  for (StringRef term : terms) {
    SmallVector<AffineExpr> positions;
    for (char letter : term)
      positions.push_back(getAffineDimExpr(
          llvm::find(letters, letter) - letters.begin(), context));
    maps.push_back(AffineMap::get(letters.size(), 0, positions, context));
  }
  return maps;
}

#define KILN_EQUATION(op)                                                      \
  SmallVector<AffineMap> op::getLoopMaps() {                                   \
    return parseEquation(getEquation(), getContext());                         \
  }
KILN_EQUATION(BroadcastOp)
KILN_EQUATION(TransposeOp)
KILN_EQUATION(SumOp)
KILN_EQUATION(MaxOp)
KILN_EQUATION(ContractOp)
#undef KILN_EQUATION

#define KILN_BODY_COPY(op)                                                     \
  Value op::buildBody(OpBuilder &, Location, ValueRange x) { return x[0]; }
KILN_BODY_COPY(BroadcastOp)
KILN_BODY_COPY(TransposeOp)
KILN_BODY_COPY(SumOp)
KILN_BODY_COPY(MaxOp)
#undef KILN_BODY_COPY

Value ContractOp::buildBody(OpBuilder &builder, Location loc, ValueRange x) {
  return arith::MulFOp::create(builder, loc, widen(builder, loc, x[0]),
                               widen(builder, loc, x[1]));
}

static LogicalResult verifyEquation(Operation *op, StringRef equation,
                                    unsigned operands) {
  auto [inputs, output] = equation.split("->");
  if (!equation.contains("->"))
    return op->emitOpError("has equation \"")
           << equation << "\" without \"->\"";
  if (llvm::count(inputs, ',') + 1 != operands)
    return op->emitOpError("has equation \"")
           << equation << "\", which names " << llvm::count(inputs, ',') + 1
           << " operands, but " << operands << " are given";
  for (char letter : (inputs + output).str())
    if (letter != ',' && (letter < 'a' || letter > 'z'))
      return op->emitOpError("has '")
             << StringRef(&letter, 1) << "' in equation \"" << equation
             << "\"; indices are lower-case letters";
  SmallVector<StringRef> terms;
  inputs.split(terms, ',');
  terms.push_back(output);
  for (StringRef term : terms)
    for (char letter : term)
      if (llvm::count(term, letter) > 1)
        return op->emitOpError("repeats index '")
               << StringRef(&letter, 1) << "' in one term of \"" << equation
               << "\"";
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  for (Value operand : op->getOperands())
    if (!isa<Accumulating>(op) &&
        getElementTypeOrSelf(operand.getType()) != element)
      return op->emitOpError("has elements of type ")
             << getElementTypeOrSelf(operand.getType()) << " in an operand and "
             << element << " in the result";
  return success();
}

// An index of the result that no operand has would be a broadcast.
static LogicalResult verifyNoNewIndex(Operation *op, StringRef equation) {
  auto [inputs, output] = equation.split("->");
  for (char letter : output)
    if (!inputs.contains(letter))
      return op->emitOpError("has index '")
             << StringRef(&letter, 1) << "' in the result that no operand has";
  return success();
}

static LogicalResult verifyNoLostIndex(Operation *op, StringRef equation) {
  auto [inputs, output] = equation.split("->");
  for (char letter : inputs)
    if (!output.contains(letter))
      return op->emitOpError("loses index '")
             << StringRef(&letter, 1) << "' of its operand";
  return success();
}

LogicalResult BroadcastOp::verify() {
  if (failed(verifyEquation(*this, getEquation(), 1)))
    return failure();
  return verifyNoLostIndex(*this, getEquation());
}
LogicalResult TransposeOp::verify() {
  if (failed(verifyEquation(*this, getEquation(), 1)) ||
      failed(verifyNoLostIndex(*this, getEquation())))
    return failure();
  return verifyNoNewIndex(*this, getEquation());
}
LogicalResult SumOp::verify() {
  if (failed(verifyEquation(*this, getEquation(), 1)))
    return failure();
  return verifyNoNewIndex(*this, getEquation());
}
LogicalResult MaxOp::verify() {
  if (failed(verifyEquation(*this, getEquation(), 1)))
    return failure();
  return verifyNoNewIndex(*this, getEquation());
}
LogicalResult ContractOp::verify() {
  if (failed(verifyEquation(*this, getEquation(), 2)))
    return failure();
  return verifyNoNewIndex(*this, getEquation());
}

static std::string swapSides(StringRef equation) {
  auto [input, output] = equation.split("->");
  return (output + "->" + input).str();
}

Values BroadcastOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  if (tensorType(getOperand()) == tensorType(getResult()))
    return {grads[0]};
  return {Composer(builder, getLoc()).sum(swapSides(getEquation()), grads[0])};
}

Values TransposeOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  return {Composer(builder, getLoc())
              .transpose(swapSides(getEquation()), grads[0])};
}

Reduction SumOp::getReduction() { return Reduction::sum; }

Values SumOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {c.broadcast(swapSides(getEquation()), grads[0],
                      tensorType(getOperand()))};
}

Reduction MaxOp::getReduction() { return Reduction::max; }

// Elements that share the maximum share its gradient.
Values MaxOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  RankedTensorType type = tensorType(getOperand());
  std::string back = swapSides(getEquation());
  Value isMax = c.compare(Predicate::eq, getOperand(),
                          c.broadcast(back, getResult(), type));
  Value mask = c.convert(isMax, type.getElementType());
  Value share = c.div(grads[0], c.sum(getEquation(), mask));
  return {c.mul(mask, c.broadcast(back, share, type))};
}

Reduction ContractOp::getReduction() { return Reduction::sum; }

// The operand that gives the result its first index comes first: then a matrix
// product has row-major A, B and C.
LogicalResult ContractOp::canonicalize(ContractOp op,
                                       PatternRewriter &rewriter) {
  auto [inputs, output] = op.getEquation().split("->");
  auto [a, b] = inputs.split(',');
  if (output.empty() || a.contains(output.front()) ||
      !b.contains(output.front()))
    return failure();
  std::string swapped = (b + "," + a + "->" + output).str();
  rewriter.replaceOpWithNewOp<ContractOp>(op, op.getType(), swapped,
                                          op.getRhs(), op.getLhs());
  return success();
}

// z[C] = sum x[A] y[B], so dx[A] = sum g[C] y[B] and dy[B] = sum x[A] g[C]. An
// index of one operand only was summed alone: the gradient is broadcast along
// it.
static Value contractGradient(Composer c, StringRef first, Value x,
                              StringRef second, Value y, StringRef wanted,
                              RankedTensorType type) {
  std::string reached;
  for (char letter : wanted)
    if (first.contains(letter) || second.contains(letter))
      reached += letter;
  Value grad = c.contract((first + "," + second + "->" + reached).str(), x, y);
  if (reached == wanted)
    return grad;
  return c.broadcast((reached + "->" + wanted).str(), grad, type);
}

Values ContractOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  auto [inputs, output] = getEquation().split("->");
  auto [a, b] = inputs.split(',');
  Value grad = c.convert(grads[0], tensorType(getLhs()).getElementType());
  return {
      contractGradient(c, output, grad, b, getRhs(), a, tensorType(getLhs())),
      contractGradient(c, a, getLhs(), output, grad, b, tensorType(getRhs()))};
}

OperandGroups ContractOp::getLinearGroups() { return {{0}, {1}}; }

} // namespace kiln
