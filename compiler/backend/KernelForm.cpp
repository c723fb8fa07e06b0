// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/KernelForm.h"
#include "dialects/kiln/Composer.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace kiln {

// Letters of `term` that `other` has, in the order of `term`.
static std::string shared(StringRef term, StringRef other) {
  std::string letters;
  for (char letter : term)
    if (other.contains(letter))
      letters += letter;
  return letters;
}

static ElementTypes getTypes(Value operand, Value result) {
  return {tensorType(operand).getElementType(),
          tensorType(result).getElementType()};
}

// Empty if an operand would first have to be permuted or swapped, or if the op
// has batch indices.
static std::optional<MatrixProduct> asMatrixProduct(ContractOp op) {
  auto [inputs, c] = op.getEquation().split("->");
  auto [a, b] = inputs.split(',');
  llvm::SmallDenseMap<char, int64_t> sizes;
  for (auto [term, value] :
       {std::pair(a, op.getLhs()), std::pair(b, op.getRhs())})
    for (auto [letter, size] :
         llvm::zip_equal(term, tensorType(value).getShape()))
      sizes[letter] = size;
  auto product = [&](StringRef letters) {
    int64_t result = 1;
    for (char letter : letters)
      result *= sizes.at(letter);
    return result;
  };
  MatrixProduct matrix;
  std::string rows = shared(c, a), columns = shared(c, b);
  std::string summed = shared(a, b);
  // Covers batch indices (in a, b and c) too: they make `rows + columns` longer
  // than c.
  if (c != rows + columns || shared(b, a) != summed)
    return std::nullopt;
  matrix.m = product(rows);
  matrix.n = product(columns);
  matrix.k = product(summed);
  matrix.types = getTypes(op.getLhs(), op.getResult());
  if (a == rows + summed) {
    matrix.aRowStride = matrix.k;
    matrix.aColumnStride = 1;
  } else if (a == summed + rows) {
    matrix.aRowStride = 1;
    matrix.aColumnStride = matrix.m;
  } else {
    return std::nullopt;
  }
  if (b == summed + columns) {
    matrix.bRowStride = matrix.n;
    matrix.bColumnStride = 1;
  } else if (b == columns + summed) {
    matrix.bRowStride = 1;
    matrix.bColumnStride = matrix.k;
  } else {
    return std::nullopt;
  }
  return matrix;
}

template <typename Attention>
static AttentionShape getShape(Attention op, Value result) {
  ArrayRef<int64_t> sizes = tensorType(op.getPacked()).getShape();
  return {sizes[0],
          sizes[1],
          sizes[3],
          sizes[4],
          op.getCausal(),
          bool(op.getLengths()),
          op.getScale().convertToDouble(),
          getTypes(op.getPacked(), result)};
}

static HeadShape getShape(HeadLossOp op) {
  RankedTensorType weight = tensorType(op.getWeight());
  Value result =
      op.hasGradients() ? op.getGradients()[0] : Value(op.getTotal());
  Type weightGradient;
  if (op.hasGradients())
    weightGradient = tensorType(op.getGradients()[1]).getElementType();
  return {tensorType(op.getLabels()).getNumElements(),
          weight.getDimSize(1),
          weight.getDimSize(0),
          getTypes(op.getX(), result),
          op.hasGradients(),
          weightGradient};
}

// `operand` is any operand of the op.
template <typename Op>
static ConvolutionShape getShape(Op op, Value image, Value filter, Value result,
                                 Value operand) {
  RankedTensorType images = tensorType(image), weights = tensorType(filter);
  return {images.getDimSize(0),
          Windows::get(images, tensorType(result),
                       weights.getShape().drop_front(2), op.getStrides(),
                       op.getPadding()),
          weights.getDimSize(1), weights.getDimSize(0),
          getTypes(operand, op.getResult())};
}

template <typename Pool> static PoolShape getPoolShape(Pool op, Value result) {
  RankedTensorType images = tensorType(op.getImage());
  return {images.getDimSize(0),
          Windows::get(images, tensorType(op.getResult()), op.getWindow(),
                       op.getStrides(), op.getPadding()),
          images.getDimSize(3), getTypes(op.getImage(), result)};
}

std::optional<KernelForm> findJointForm(Operation *op) {
  using Form = std::optional<KernelForm>;
  return llvm::TypeSwitch<Operation *, Form>(op)
      .Case([](AttentionOp op) -> Form {
        return AttentionForm{getShape(op, op.getResult()),
                             /*isGradient=*/false};
      })
      .Case([](AttentionGradOp op) -> Form {
        return AttentionForm{getShape(op, op.getDpacked()),
                             /*isGradient=*/true};
      })
      .Case([](HeadLossOp op) -> Form { return HeadForm{getShape(op)}; })
      .Case([](ConvolutionOp op) -> Form {
        return ConvolutionForm{getShape(op, op.getImage(), op.getFilter(),
                                        op.getResult(), op.getImage()),
                               ConvolutionSide::result};
      })
      .Case([](ConvolutionGradInputOp op) -> Form {
        return ConvolutionForm{getShape(op, op.getResult(), op.getFilter(),
                                        op.getGrad(), op.getGrad()),
                               ConvolutionSide::image};
      })
      .Case([](ConvolutionGradWeightOp op) -> Form {
        return ConvolutionForm{getShape(op, op.getImage(), op.getResult(),
                                        op.getGrad(), op.getImage()),
                               ConvolutionSide::filter};
      })
      .Case([](MaxPoolOp op) -> Form {
        return PoolForm{getPoolShape(op, op.getResult()), /*isGradient=*/false};
      })
      .Case([](MaxPoolGradOp op) -> Form {
        return PoolForm{getPoolShape(op, op.getDimage()), /*isGradient=*/true};
      })
      .Default([](Operation *) { return std::nullopt; });
}

// The form of an op that is a kernel by itself.
static std::optional<KernelForm> findSingleForm(Operation *op, Block &body) {
  auto contraction = dyn_cast<ContractOp>(op);
  if (!contraction)
    return findJointForm(op);
  // Code for a product finds its operands by argument index.
  bool isDirect = body.getNumArguments() == 2 &&
                  contraction.getLhs() == body.getArgument(0) &&
                  contraction.getRhs() == body.getArgument(1);
  if (isDirect)
    if (auto product = asMatrixProduct(contraction))
      return *product;
  return std::nullopt;
}

FailureOr<KernelForm> getKernelForm(exec::KernelOp kernel) {
  Block &body = kernel.getBody().front();
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  if (ops.size() == 1)
    if (auto form = findSingleForm(ops.front(), body))
      return *form;
  if (llvm::all_of(ops, isFusable))
    if (auto domain = KernelDomain::analyse(ops))
      return KernelForm(RowsForm{std::move(*domain)});
  if (ops.size() == 1)
    return KernelForm(PlainForm{ops.front()});
  return kernel.emitOpError("has ")
         << ops.size() << " ops that share no loops; wanted one, or ops that "
         << "have a kernel domain";
}

} // namespace kiln
