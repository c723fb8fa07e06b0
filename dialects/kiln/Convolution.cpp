// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ops whose windows slide over images. Their definitions are two maps that are
// each other's adjoint: `gatherWindows` copies the elements of all windows, and
// `scatterWindows` sums the elements of windows back into images.
#include "dialects/kiln/Answers.h"
#include "dialects/kiln/Windows.h"

#include <limits>

using namespace mlir;

namespace kiln {

static int64_t countWindows(int64_t size, int64_t window, int64_t stride,
                            int64_t padding) {
  return (size + 2 * padding - window) / stride + 1;
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

static RankedTensorType inferResult(RankedTensorType image,
                                    ArrayRef<int64_t> window,
                                    ArrayRef<int64_t> strides,
                                    ArrayRef<int64_t> padding,
                                    int64_t channels) {
  SmallVector<int64_t> shape(image.getShape());
  for (int64_t axis = 0; axis < 2; ++axis)
    shape[1 + axis] = countWindows(shape[1 + axis], window[axis], strides[axis],
                                   padding[axis]);
  shape[3] = channels;
  return RankedTensorType::get(shape, image.getElementType());
}

// Checks the windows, and that they turn `image` into `result`.
static LogicalResult
verifyWindows(Operation *op, RankedTensorType image, RankedTensorType result,
              ArrayRef<int64_t> window, ArrayRef<int64_t> strides,
              ArrayRef<int64_t> padding, int64_t channels) {
  if (image.getRank() != 4)
    return op->emitOpError(
               "needs images as [batch, height, width, channels], found ")
           << image;
  if (window.size() != 2 || strides.size() != 2 || padding.size() != 2)
    return op->emitOpError("needs window, strides and padding of two "
                           "dimensions, found [")
           << window << "], [" << strides << "] and [" << padding << "]";
  for (int64_t axis = 0; axis < 2; ++axis) {
    if (window[axis] < 1 || strides[axis] < 1 || padding[axis] < 0)
      return op->emitOpError("has window [")
             << window << "], strides [" << strides << "] and padding ["
             << padding << "]; wanted at least 1, 1 and 0";
    if (image.isDynamicDim(1 + axis) ||
        image.getDimSize(1 + axis) + 2 * padding[axis] < window[axis])
      return op->emitOpError("has no room for a window [")
             << window << "] in " << image << " with padding [" << padding
             << "]";
  }
  RankedTensorType wanted =
      inferResult(image, window, strides, padding, channels)
          .clone(result.getElementType());
  if (result != wanted)
    return op->emitOpError("makes ") << wanted << ", found " << result;
  return success();
}

static ArrayRef<int64_t> filterWindow(RankedTensorType filter) {
  return filter.getShape().drop_front(2);
}

static LogicalResult verifyConvolution(Operation *op, RankedTensorType image,
                                       RankedTensorType filter,
                                       RankedTensorType result,
                                       ArrayRef<int64_t> strides,
                                       ArrayRef<int64_t> padding) {
  if (filter.getRank() != 4 || !filter.hasStaticShape())
    return op->emitOpError(
               "needs a filter as [outputs, inputs, height, width], found ")
           << filter;
  if (failed(verifyWindows(op, image, result, filterWindow(filter), strides,
                           padding, filter.getDimSize(0))))
    return failure();
  if (image.getDimSize(3) != filter.getDimSize(1))
    return op->emitOpError("applies filter ") << filter << " to " << image;
  return success();
}

LogicalResult ConvolutionOp::verify() {
  return verifyConvolution(*this, tensorType(getImage()),
                           tensorType(getFilter()), tensorType(getResult()),
                           getStrides(), getPadding());
}

LogicalResult ConvolutionGradInputOp::verify() {
  return verifyConvolution(*this, tensorType(getResult()),
                           tensorType(getFilter()), tensorType(getGrad()),
                           getStrides(), getPadding());
}

LogicalResult ConvolutionGradWeightOp::verify() {
  return verifyConvolution(*this, tensorType(getImage()),
                           tensorType(getResult()), tensorType(getGrad()),
                           getStrides(), getPadding());
}

static LogicalResult verifyPool(Operation *op, RankedTensorType image,
                                RankedTensorType result,
                                ArrayRef<int64_t> window,
                                ArrayRef<int64_t> strides,
                                ArrayRef<int64_t> padding) {
  if (failed(verifyWindows(op, image, result, window, strides, padding,
                           image.getRank() == 4 ? image.getDimSize(3) : 0)))
    return failure();
  for (auto [size, around] : llvm::zip_equal(window, padding))
    if (2 * around > size)
      return op->emitOpError("has padding [")
             << padding << "], more than half of the window [" << window << "]";
  return success();
}

LogicalResult MaxPoolOp::verify() {
  return verifyPool(*this, tensorType(getImage()), tensorType(getResult()),
                    getWindow(), getStrides(), getPadding());
}

LogicalResult MaxPoolGradOp::verify() {
  return verifyPool(*this, tensorType(getImage()), tensorType(getResult()),
                    getWindow(), getStrides(), getPadding());
}

void ConvolutionOp::build(OpBuilder &builder, OperationState &state,
                          Value image, Value filter, ArrayRef<int64_t> strides,
                          ArrayRef<int64_t> padding) {
  RankedTensorType weights = tensorType(filter);
  RankedTensorType result =
      inferResult(tensorType(image), filterWindow(weights), strides, padding,
                  weights.getDimSize(0));
  build(builder, state, result, image, filter, strides, padding);
}

void MaxPoolOp::build(OpBuilder &builder, OperationState &state, Value image,
                      ArrayRef<int64_t> window, ArrayRef<int64_t> strides,
                      ArrayRef<int64_t> padding) {
  RankedTensorType type = tensorType(image);
  RankedTensorType result =
      inferResult(type, window, strides, padding, type.getDimSize(3));
  build(builder, state, result, image, window, strides, padding);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Values ConvolutionOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  Value grad = c.convertLike(grads[0], getImage());
  return {ConvolutionGradInputOp::create(
              builder, getLoc(), accumulatorType(getImage()), grad, getFilter(),
              getStrides(), getPadding()),
          ConvolutionGradWeightOp::create(
              builder, getLoc(), accumulatorType(getFilter()), getImage(), grad,
              getStrides(), getPadding())};
}

Values MaxPoolOp::buildVjp(OpBuilder &builder, ValueRange grads) {
  Composer c(builder, getLoc());
  return {MaxPoolGradOp::create(builder, getLoc(), accumulatorType(getImage()),
                                getImage(),
                                c.convertLike(getResult(), getImage()),
                                c.convertLike(grads[0], getImage()),
                                getWindow(), getStrides(), getPadding())};
}

//===----------------------------------------------------------------------===//
// Definitions
//===----------------------------------------------------------------------===//

// Pads `x` with `value` before and behind along one dimension; negative counts
// remove elements.
static Value resize(Composer &c, Value x, int64_t dimension, int64_t before,
                    int64_t behind, double value) {
  int64_t first = std::max<int64_t>(0, -before);
  int64_t last =
      tensorType(x).getDimSize(dimension) - std::max<int64_t>(0, -behind);
  if (before < 0 || behind < 0)
    x = c.slice(x, dimension, first, last - first);
  RankedTensorType type = tensorType(x);
  SmallVector<Value> parts;
  auto fill = [&](int64_t size) {
    if (size <= 0)
      return;
    SmallVector<int64_t> shape(type.getShape());
    shape[dimension] = size;
    parts.push_back(
        c.broadcast("->" + indexLetters(type.getRank()),
                    c.constant(value, type.getElementType()),
                    RankedTensorType::get(shape, type.getElementType())));
  };
  fill(before);
  parts.push_back(x);
  fill(behind);
  return parts.size() == 1 ? x : c.concatenate(parts, dimension);
}

// The shape of `x` with one dimension replaced by several, or several by one.
static Value reshapeAt(Composer &c, Value x, int64_t dimension, int64_t count,
                       ArrayRef<int64_t> sizes) {
  ArrayRef<int64_t> from = tensorType(x).getShape();
  SmallVector<int64_t> shape(from.take_front(dimension));
  llvm::append_range(shape, sizes);
  llvm::append_range(shape, from.drop_front(dimension + count));
  return c.reshape(x, shape);
}

// [..., size, ...] -> [..., window, count, ...]. The image is cut into blocks
// of one stride: element t of window n is element t % stride of block
// n + t / stride.
static Value gatherAxis(Composer &c, Value x, int64_t dimension,
                        const WindowAxis &axis, double outside) {
  Value blocks = reshapeAt(
      c, resize(c, x, dimension, axis.padding, axis.behind(), outside),
      dimension, 1, {axis.blocks(), axis.stride});
  SmallVector<Value> taps;
  for (int64_t tap = 0; tap < axis.window; ++tap) {
    Value rows = c.slice(blocks, dimension, tap / axis.stride, axis.count);
    Value row = c.slice(rows, dimension + 1, tap % axis.stride, 1);
    taps.push_back(reshapeAt(c, row, dimension, 2, {1, axis.count}));
  }
  return c.concatenate(taps, dimension);
}

// The adjoint of gatherAxis.
static Value scatterAxis(Composer &c, Value x, int64_t dimension,
                         const WindowAxis &axis) {
  Value total;
  for (int64_t tap = 0; tap < axis.window; ++tap) {
    Value row = reshapeAt(c, c.slice(x, dimension, tap, 1), dimension, 2,
                          {axis.count, 1});
    int64_t phase = tap % axis.stride, block = tap / axis.stride;
    row = resize(c, row, dimension + 1, phase, axis.stride - 1 - phase, 0);
    row =
        resize(c, row, dimension, block, axis.blocks() - axis.count - block, 0);
    total = total ? c.add(total, row) : row;
  }
  Value image =
      reshapeAt(c, total, dimension, 2, {axis.blocks() * axis.stride});
  return resize(c, image, dimension, -axis.padding, -axis.behind(), 0);
}

// [b, height, width, i] -> [b, p, y, q, x, i]
static Value gatherWindows(Composer &c, Value image, const Windows &windows,
                           double outside) {
  return gatherAxis(c, gatherAxis(c, image, 1, windows.rows, outside), 3,
                    windows.columns, outside);
}

static Value scatterWindows(Composer &c, Value x, const Windows &windows) {
  return scatterAxis(c, scatterAxis(c, x, 3, windows.columns), 1, windows.rows);
}

Values ConvolutionOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Windows windows = Windows::get(
      tensorType(getImage()), tensorType(getResult()),
      filterWindow(tensorType(getFilter())), getStrides(), getPadding());
  Value gathered = gatherWindows(c, getImage(), windows, 0);
  return {c.convertLike(c.contract("bpyqxi,oipq->byxo", gathered, getFilter()),
                        getResult())};
}

Values ConvolutionGradInputOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Windows windows = Windows::get(tensorType(getResult()), tensorType(getGrad()),
                                 filterWindow(tensorType(getFilter())),
                                 getStrides(), getPadding());
  Value parts = c.contract("byxo,oipq->bpyqxi", getGrad(), getFilter());
  return {c.convertLike(scatterWindows(c, parts, windows), getResult())};
}

Values ConvolutionGradWeightOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Windows windows = Windows::get(tensorType(getImage()), tensorType(getGrad()),
                                 filterWindow(tensorType(getResult())),
                                 getStrides(), getPadding());
  Value gathered = gatherWindows(c, getImage(), windows, 0);
  return {c.convertLike(c.contract("bpyqxi,byxo->oipq", gathered, getGrad()),
                        getResult())};
}

static constexpr double kOutside = -std::numeric_limits<double>::infinity();

Values MaxPoolOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Windows windows =
      Windows::get(tensorType(getImage()), tensorType(getResult()), getWindow(),
                   getStrides(), getPadding());
  Value greatest = c.max(
      "bpyqxi->byxi", c.widen(gatherWindows(c, getImage(), windows, kOutside)));
  return {c.convertLike(greatest, getResult())};
}

// The gradient goes to the first of the greatest elements of a window.
Values MaxPoolGradOp::decompose(OpBuilder &builder) {
  Composer c(builder, getLoc());
  Windows windows =
      Windows::get(tensorType(getImage()), tensorType(getResult()), getWindow(),
                   getStrides(), getPadding());
  Value gathered = c.widen(gatherWindows(c, getImage(), windows, kOutside));
  RankedTensorType type = tensorType(gathered);
  Type element = type.getElementType();
  Value isGreatest =
      c.compare(Predicate::eq, gathered,
                c.broadcast("byxi->bpyqxi", c.widen(getResult()), type));
  int64_t height = windows.rows.window, width = windows.columns.window;
  Value number = c.reshape(c.iota(height * width), {height, width});
  Value place =
      c.broadcast("pq->bpyqxi", c.negate(c.convert(number, element)), type);
  Value candidates = c.select(isGreatest, place, c.fill(kOutside, gathered));
  Value first =
      c.broadcast("byxi->bpyqxi", c.max("bpyqxi->byxi", candidates), type);
  Value isFirst = c.compare(Predicate::eq, place, first);
  Value grads = c.broadcast("byxi->bpyqxi", c.widen(getGrad()), type);
  Value image =
      scatterWindows(c, c.select(isFirst, grads, c.fill(0, gathered)), windows);
  return {c.convertLike(image, getDimage())};
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

// Every element of the filter meets every position of the result once, padding
// included, as in the figures of other frameworks.
static Work getConvolutionWork(Operation *op, int64_t m, int64_t n, int64_t k,
                               Type elementType) {
  Work work;
  work.products.emplace_back(/*batch=*/1, m, n, k, elementType);
  work.bytes = getStreamedBytes(op);
  return work;
}

namespace {
/// Sizes of a convolution with this result and filter.
struct Counts {
  Counts(Value result, Value filter)
      : outputs(tensorType(filter).getDimSize(0)),
        inputs(tensorType(filter).getDimSize(1)),
        places(tensorType(result).getNumElements() / outputs),
        taps(tensorType(filter).getNumElements() / outputs / inputs) {}
  int64_t outputs, inputs, places, taps;
};
} // namespace

Work ConvolutionOp::getWork() {
  Counts counts(getResult(), getFilter());
  return getConvolutionWork(*this, counts.places, counts.outputs,
                            counts.inputs * counts.taps,
                            getElementTypeOrSelf(getFilter().getType()));
}
Work ConvolutionGradInputOp::getWork() {
  Counts counts(getGrad(), getFilter());
  return getConvolutionWork(*this, counts.places, counts.inputs * counts.taps,
                            counts.outputs,
                            getElementTypeOrSelf(getFilter().getType()));
}
Work ConvolutionGradWeightOp::getWork() {
  Counts counts(getGrad(), getResult());
  return getConvolutionWork(*this, counts.outputs, counts.inputs * counts.taps,
                            counts.places,
                            getElementTypeOrSelf(getResult().getType()));
}

static Work getPoolWork(Operation *op, Value result, ArrayRef<int64_t> window,
                        int64_t perTap) {
  Work work;
  work.pointwise =
      perTap * tensorType(result).getNumElements() * window[0] * window[1];
  work.bytes = getStreamedBytes(op);
  return work;
}

// A comparison for each element of each window; the gradient also adds.
Work MaxPoolOp::getWork() {
  return getPoolWork(*this, getResult(), getWindow(), 1);
}
Work MaxPoolGradOp::getWork() {
  return getPoolWork(*this, getResult(), getWindow(), 2);
}

std::string ConvolutionOp::getFactors() { return "bHWi,oiPQ->bYXo"; }

std::string ConvolutionGradInputOp::getFactors() { return "bYXo,oiPQ->bHWi"; }

std::string ConvolutionGradWeightOp::getFactors() { return "bHWi,bYXo->oiPQ"; }

std::string MaxPoolOp::getFactors() { return "bHWc->bYXc"; }

std::string MaxPoolGradOp::getFactors() { return "bHWc,bYXc,bYXc->bHWc"; }

OperandGroups ConvolutionOp::getLinearGroups() { return {{0}, {1}}; }

OperandGroups ConvolutionGradInputOp::getLinearGroups() { return {{0}, {1}}; }

OperandGroups ConvolutionGradWeightOp::getLinearGroups() { return {{0}, {1}}; }

} // namespace kiln
