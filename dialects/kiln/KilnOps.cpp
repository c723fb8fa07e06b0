// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "dialects/kiln/Kiln.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialects/kiln/KilnDialect.cpp.inc"
#include "dialects/kiln/KilnEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/kiln/KilnAttributes.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/kiln/KilnOps.cpp.inc"

namespace kiln {

void KilnDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/kiln/KilnAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/kiln/KilnOps.cpp.inc"
      >();
}

int64_t getByteSize(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t width = tensor.getElementTypeBitWidth();
  return tensor.getNumElements() * (width == 1 ? 1 : width / 8);
}

//===----------------------------------------------------------------------===//
// Variables and structure
//===----------------------------------------------------------------------===//

static LogicalResult verifyVariableUse(Operation *op, StringAttr name,
                                       Type found,
                                       SymbolTableCollection &symbols) {
  auto variable = symbols.lookupNearestSymbolFrom<VariableOp>(op, name);
  if (!variable)
    return op->emitOpError("names '")
           << name.getValue() << "', which is not a variable";
  if (variable.getType() != found)
    return op->emitOpError("has type ")
           << found << ", but variable '" << name.getValue() << "' has type "
           << variable.getType();
  return success();
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, getVariableAttr().getAttr(), getType(),
                           symbols);
}

LogicalResult AssignOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyVariableUse(*this, getVariableAttr().getAttr(),
                           getValue().getType(), symbols);
}

static LogicalResult verifyArguments(Operation *op, StringRef region,
                                     Region &body, ArrayRef<Type> wanted) {
  auto found = body.front().getArgumentTypes();
  if (llvm::equal(found, wanted))
    return success();
  return op->emitOpError("has region '")
         << region << "' with arguments (" << found << "), but it is given ("
         << wanted << ")";
}

LogicalResult StepOp::verifyRegions() {
  for (Region &region : (*this)->getRegions())
    if (region.empty() || !isa<YieldOp>(region.front().back()))
      return emitOpError("needs regions that end in kiln.yield");
  auto yielded = [](Region &region) {
    return SmallVector<Type>(region.front().getTerminator()->getOperandTypes());
  };
  SmallVector<Type> inputs(getPrologue().front().getArgumentTypes());
  if (inputs.size() != getInputs().size())
    return emitOpError("names ")
           << getInputs().size() << " inputs, but its prologue takes "
           << inputs.size();
  SmallVector<Type> counts = yielded(getPrologue());
  SmallVector<Type> micro = inputs;
  micro.append(counts);
  SmallVector<Type> update = counts;
  update.append(yielded(getAccumulate()));
  if (failed(verifyArguments(*this, "accumulate", getAccumulate(), micro)) ||
      failed(verifyArguments(*this, "update", getUpdate(), update)))
    return failure();
  if (yielded(getUpdate()).size() != getOutputs().size())
    return emitOpError("names ")
           << getOutputs().size() << " outputs, but its update yields "
           << yielded(getUpdate()).size();
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getOperandTypes())
    return emitOpError("has operands (")
           << getOperandTypes() << "), but its body takes ("
           << block.getArgumentTypes() << ")";
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || yield.getOperandTypes() != getResultTypes())
    return emitOpError("must yield values of its result types (")
           << getResultTypes() << ")";
  return success();
}

LogicalResult ConstantOp::verify() {
  if (cast<RankedTensorType>(getType()).getRank() != 0)
    return emitOpError("makes a scalar, but its type is ") << getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Equations
//===----------------------------------------------------------------------===//

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
    if (getElementTypeOrSelf(operand.getType()) != element)
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

SmallVector<AffineMap> RandomOp::getLoopMaps() {
  MLIRContext *context = getContext();
  AffineExpr sample = getAffineDimExpr(0, context),
             element = getAffineDimExpr(1, context);
  return {AffineMap::get(2, 0, sample), AffineMap::get(2, 0, element),
          AffineMap::get(2, 0, context),
          AffineMap::get(2, 0, {sample, element}, context)};
}

Reduction SumOp::getReduction() { return Reduction::sum; }
Reduction MaxOp::getReduction() { return Reduction::max; }
Reduction ContractOp::getReduction() { return Reduction::sum; }

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

//===----------------------------------------------------------------------===//
// Verifiers of the other ops
//===----------------------------------------------------------------------===//

LogicalResult ReshapeOp::verify() {
  auto from = cast<RankedTensorType>(getOperand().getType());
  auto to = cast<RankedTensorType>(getType());
  if (from.getElementType() != to.getElementType())
    return emitOpError("cannot turn ")
           << from << " into " << to << ": the element types differ";
  // The batch stays where it is, so that every `?` remains the batch.
  bool isSymbolic = !from.hasStaticShape() || !to.hasStaticShape();
  ArrayRef<int64_t> source = from.getShape(), target = to.getShape();
  if (isSymbolic) {
    if (source.empty() || target.empty() ||
        !ShapedType::isDynamic(source.front()) ||
        !ShapedType::isDynamic(target.front()))
      return emitOpError("must keep the batch as first dimension, but turns ")
             << from << " into " << to;
    source = source.drop_front();
    target = target.drop_front();
  }
  auto product = [](ArrayRef<int64_t> shape) {
    int64_t result = 1;
    for (int64_t size : shape)
      result *= size;
    return result;
  };
  if (product(source) != product(target))
    return emitOpError("turns ")
           << product(source) << " elements into " << product(target);
  return success();
}

LogicalResult IotaOp::verify() {
  if (cast<RankedTensorType>(getType()).getRank() != 1)
    return emitOpError("makes a vector, but its type is ") << getType();
  return success();
}

static LogicalResult verifyDimension(Operation *op, int64_t dimension,
                                     int64_t rank) {
  if (dimension < 0 || dimension >= rank)
    return op->emitOpError("names dimension ")
           << dimension << " of a tensor of rank " << rank;
  return success();
}

LogicalResult SliceOp::verify() {
  auto from = cast<RankedTensorType>(getOperand().getType());
  auto to = cast<RankedTensorType>(getType());
  int64_t dimension = getDimension();
  if (failed(verifyDimension(*this, dimension, from.getRank())))
    return failure();
  SmallVector<int64_t> wanted(from.getShape());
  if (to.getRank() == from.getRank())
    wanted[dimension] = to.getDimSize(dimension);
  if (to != RankedTensorType::get(wanted, from.getElementType()) ||
      from.isDynamicDim(dimension))
    return emitOpError("cannot cut ")
           << to << " out of " << from << " along dimension " << dimension;
  int64_t end = getOffset() + to.getDimSize(dimension);
  if (int64_t(getOffset()) < 0 || end > from.getDimSize(dimension))
    return emitOpError("takes [")
           << getOffset() << ", " << end << ") of dimension " << dimension
           << ", which has size " << from.getDimSize(dimension);
  return success();
}

LogicalResult ConcatenateOp::verify() {
  auto to = cast<RankedTensorType>(getType());
  int64_t dimension = getDimension();
  if (failed(verifyDimension(*this, dimension, to.getRank())))
    return failure();
  if (to.isDynamicDim(dimension))
    return emitOpError("cannot join along the batch");
  int64_t total = 0;
  for (Value operand : getOperands()) {
    auto from = cast<RankedTensorType>(operand.getType());
    SmallVector<int64_t> wanted(to.getShape());
    if (from.getRank() == to.getRank())
      wanted[dimension] = from.getDimSize(dimension);
    if (from != RankedTensorType::get(wanted, to.getElementType()))
      return emitOpError("cannot place ") << from << " into " << to;
    total += from.getDimSize(dimension);
  }
  if (total != to.getDimSize(dimension))
    return emitOpError("joins ")
           << total << " along dimension " << dimension
           << ", but the result has size " << to.getDimSize(dimension);
  return success();
}

static LogicalResult verifyRows(Operation *op, RankedTensorType ids,
                                RankedTensorType rows, RankedTensorType table) {
  SmallVector<int64_t> wanted(ids.getShape());
  if (table.getRank() != 2)
    return op->emitOpError("needs a table of rank 2, found ") << table;
  wanted.push_back(table.getDimSize(1));
  if (rows != RankedTensorType::get(wanted, table.getElementType()))
    return op->emitOpError("relates ids ")
           << ids << " and table " << table << " to rows " << rows;
  return success();
}

LogicalResult EmbeddingOp::verify() {
  return verifyRows(*this, cast<RankedTensorType>(getIds().getType()),
                    cast<RankedTensorType>(getType()),
                    cast<RankedTensorType>(getTable().getType()));
}

LogicalResult EmbeddingGradOp::verify() {
  return verifyRows(*this, cast<RankedTensorType>(getIds().getType()),
                    cast<RankedTensorType>(getGrad().getType()),
                    cast<RankedTensorType>(getType()));
}

LogicalResult LayerNormOp::verify() {
  auto type = cast<RankedTensorType>(getOperand().getType());
  if (type.getRank() < 1)
    return emitOpError("needs a dimension to normalise, found ") << type;
  auto vector =
      RankedTensorType::get(type.getShape().back(), type.getElementType());
  auto rows =
      RankedTensorType::get(type.getShape().drop_back(), type.getElementType());
  if (getScale().getType() != vector ||
      (getShift() && getShift().getType() != vector))
    return emitOpError("needs scale and shift of type ")
           << vector << ", found " << getScale().getType();
  if (getResult().getType() != type || getMean().getType() != rows ||
      getRstd().getType() != rows)
    return emitOpError("must have results ")
           << type << ", " << rows << " and " << rows;
  return success();
}

static LogicalResult verifySameElements(Operation *op, Type first,
                                        Type second) {
  if (getElementTypeOrSelf(first) != getElementTypeOrSelf(second))
    return op->emitOpError("has elements of type ")
           << getElementTypeOrSelf(first) << " and "
           << getElementTypeOrSelf(second) << "; wanted one type";
  return success();
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
  if (failed(verifySameElements(*this, getLogits().getType(), getType())))
    return failure();
  return verifyLabels(*this, cast<RankedTensorType>(getLogits().getType()),
                      cast<RankedTensorType>(getLabels().getType()));
}

LogicalResult HeadLossOp::verify() {
  auto x = cast<RankedTensorType>(getX().getType());
  auto weight = cast<RankedTensorType>(getWeight().getType());
  if (weight.getRank() != 2 || x.getRank() < 1 ||
      weight.getDimSize(1) != x.getShape().back())
    return emitOpError("contracts rows of ") << x << " with rows of " << weight;
  bool areGradients = !hasGradients() || llvm::equal(getGradients().getTypes(),
                                                     ArrayRef<Type>{x, weight});
  if (!areGradients || getTotal().getType() != getCorrect().getType() ||
      cast<RankedTensorType>(getTotal().getType()).getRank() != 0)
    return emitOpError("must have two scalars as results, and perhaps "
                       "gradients of the types of x and weight");
  if (failed(verifySameElements(*this, x, weight)) ||
      failed(verifySameElements(*this, x, getTotal().getType())))
    return failure();
  return verifyLabels(*this, x, cast<RankedTensorType>(getLabels().getType()));
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

static LogicalResult verifyAttention(Operation *op, RankedTensorType packed,
                                     Type result, Type lse, Value lengths) {
  if (packed.getRank() != 5 || packed.getDimSize(2) != 3)
    return op->emitOpError("needs queries, keys and values as [batch, "
                           "sequence, 3, heads, width], found ")
           << packed;
  ArrayRef<int64_t> shape = packed.getShape();
  auto wanted = RankedTensorType::get({shape[0], shape[1], shape[3], shape[4]},
                                      packed.getElementType());
  auto wantedLse = RankedTensorType::get({shape[0], shape[3], shape[1]},
                                         packed.getElementType());
  if (result != wanted || lse != wantedLse)
    return op->emitOpError("must have results ")
           << wanted << " and " << wantedLse << ", found " << result << " and "
           << lse;
  if (lengths && cast<RankedTensorType>(lengths.getType()) !=
                     RankedTensorType::get(
                         shape[0], IntegerType::get(op->getContext(), 32)))
    return op->emitOpError("needs one i32 length per sample of ")
           << packed << ", found " << lengths.getType();
  return success();
}

LogicalResult AttentionOp::verify() {
  return verifyAttention(*this, cast<RankedTensorType>(getPacked().getType()),
                         getResult().getType(), getLse().getType(),
                         getLengths());
}

LogicalResult AttentionGradOp::verify() {
  if (getDpacked().getType() != getPacked().getType() ||
      getGrad().getType() != getResult().getType())
    return emitOpError(
               "must have gradients of the types of packed and result, found ")
           << getDpacked().getType() << " and " << getGrad().getType();
  return verifyAttention(*this, cast<RankedTensorType>(getPacked().getType()),
                         getResult().getType(), getLse().getType(),
                         getLengths());
}

LogicalResult DropoutOp::verify() {
  auto type = cast<RankedTensorType>(getOperand().getType());
  auto samples = cast<RankedTensorType>(getSamples().getType());
  if (type.getRank() < 1 || samples.getRank() != 1 ||
      samples.getDimSize(0) != type.getDimSize(0))
    return emitOpError("needs one number per sample of ")
           << type << ", found " << samples;
  if (getElements() &&
      cast<RankedTensorType>(getElements().getType()).getShape() !=
          type.getShape().drop_front())
    return emitOpError("needs one number per element of a sample of ")
           << type << ", found " << getElements().getType();
  double rate = getRate().convertToDouble();
  if (!(rate >= 0 && rate < 1))
    return emitOpError("has rate ") << rate << "; wanted at least 0, below 1";
  return success();
}

static LogicalResult verifyBatchNorm(Operation *op, RankedTensorType type,
                                     int64_t group, ArrayRef<Value> perChannel,
                                     ArrayRef<Value> perSample) {
  if (type.getRank() < 2)
    return op->emitOpError("needs [batch, ..., channels], found ") << type;
  int64_t batch = type.getDimSize(0);
  if (group < 1 || (!ShapedType::isDynamic(batch) && batch % group != 0))
    return op->emitOpError("takes statistics over groups of ")
           << group << " samples, which do not make up a batch of " << batch
           << "; wanted a multiple";
  auto vector =
      RankedTensorType::get(type.getShape().back(), type.getElementType());
  auto rows = RankedTensorType::get({batch, type.getShape().back()},
                                    type.getElementType());
  for (Value value : perChannel)
    if (value.getType() != vector)
      return op->emitOpError("needs ")
             << vector << " per channel, found " << value.getType();
  for (Value value : perSample)
    if (value.getType() != rows)
      return op->emitOpError("needs ")
             << rows << " for mean and variance, found " << value.getType();
  return success();
}

LogicalResult BatchNormOp::verify() {
  if (getResult().getType() != getOperand().getType())
    return emitOpError("turns ")
           << getOperand().getType() << " into " << getResult().getType();
  return verifyBatchNorm(*this, cast<RankedTensorType>(getOperand().getType()),
                         getGroup(), {getScale(), getShift()},
                         {getMean(), getVariance()});
}

LogicalResult BatchNormGradOp::verify() {
  if (getGrad().getType() != getOperand().getType() ||
      getDoperand().getType() != getOperand().getType())
    return emitOpError("has gradients of types ")
           << getGrad().getType() << " and " << getDoperand().getType()
           << "; wanted that of the operand";
  return verifyBatchNorm(*this, cast<RankedTensorType>(getOperand().getType()),
                         getGroup(), {getScale(), getDscale(), getDshift()},
                         {getMean(), getVariance()});
}

} // namespace kiln
