// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/convolution/SlidingPlan.h"

using namespace mlir;

namespace kiln::cpu {

AxisPlan planForward(const WindowAxis &axis) {
  AxisPlan plan = {axis.size, axis.count, axis.stride, 1, {}, {}};
  int64_t first = axis.window, last = 0;
  auto taps = [&](int64_t place) {
    int64_t start = place * axis.stride - axis.padding;
    int64_t begin = std::max<int64_t>(0, -start);
    int64_t end = std::min(axis.window, axis.size - start);
    return std::pair(begin, std::max(begin, end));
  };
  for (int64_t place = 0; place < axis.count; ++place) {
    auto [begin, end] = taps(place);
    if (begin == end)
      continue;
    first = std::min(first, begin);
    last = std::max(last, end);
  }
  for (int64_t place = 0; place < axis.count; ++place) {
    auto [begin, end] = taps(place);
    if (begin == end)
      plan.add({place, 1, 0, 0, 0});
    else
      plan.add({place, 1, place * axis.stride - axis.padding + begin,
                begin - first, end - begin});
  }
  for (int64_t tap = first; tap < last; ++tap)
    plan.taps.push_back(tap);
  return plan;
}

// Place i of the image is seen by tap p of window (i + padding - p) / stride,
// if that is an integer. Places of one phase see the taps of one remainder;
// descending taps see ascending windows.
AxisPlan planGradient(const WindowAxis &axis) {
  AxisPlan plan = {axis.count, axis.size, 1, axis.stride, {}, {}};
  int64_t stride = axis.stride;
  auto remainder = [&](int64_t value) {
    return (value % stride + stride) % stride;
  };
  for (int64_t phase = 0; phase < std::min(stride, axis.size); ++phase) {
    int64_t wanted = (phase + axis.padding) % stride;
    auto highest = [&](int64_t place) {
      int64_t limit = std::min(axis.window - 1, place + axis.padding);
      return limit - remainder(limit - wanted);
    };
    auto lowest = [&](int64_t place) {
      int64_t limit = std::max<int64_t>(0, place + axis.padding -
                                               (axis.count - 1) * stride);
      return limit + remainder(wanted - limit);
    };
    int64_t first = -1, last = axis.window;
    for (int64_t place = phase; place < axis.size; place += stride) {
      if (lowest(place) > highest(place))
        continue;
      first = std::max(first, highest(place));
      last = std::min(last, lowest(place));
    }
    for (int64_t place = phase; place < axis.size; place += stride) {
      int64_t high = highest(place), low = lowest(place);
      if (low > high)
        plan.add({place, 1, 0, 0, 0});
      else
        plan.add({place, 1, (place + axis.padding - high) / stride,
                  int64_t(plan.taps.size()) + (first - high) / stride,
                  (high - low) / stride + 1});
    }
    for (int64_t tap = first; tap >= last; tap -= stride)
      plan.taps.push_back(tap);
  }
  return plan;
}

static DepthBlock chooseBlock(const SlidingProduct &product, int64_t limit) {
  int64_t height = std::max<int64_t>(1, product.rows.taps.size());
  int64_t width = std::max<int64_t>(1, product.columns.taps.size());
  int64_t channels = product.channels;
  if (width * channels <= limit) {
    int64_t blocks = llvm::divideCeil(height * width * channels, limit);
    return {int64_t(llvm::divideCeil(height, blocks)), width, channels};
  }
  if (channels <= limit)
    return {1, limit / channels, channels};
  int64_t blocks = llvm::divideCeil(channels, limit);
  return {1, 1, int64_t(llvm::alignTo(llvm::divideCeil(channels, blocks), 8))};
}

// Places of classes that see fewer taps cost less: an item has more of them.
static void cutRows(const SlidingProduct &product, int64_t rowsPerItem,
                    SlidingPlan &plan) {
  plan.classes.clear();
  plan.rowItems = 0;
  int64_t tile = plan.tile.rows, allTaps = product.tapCount();
  auto reciprocal = [](int64_t value) {
    return ((int64_t(1) << 32) + value - 1) / value;
  };
  const AxisPlan &y = product.rows, &x = product.columns;
  for (const PlaceClass &row : y.classes)
    for (const PlaceClass &column : x.classes) {
      int64_t rows = product.batch * row.count * column.count;
      // Places that see nothing are set to zero: an eighth of a tap's work.
      bool isEmpty = row.taps == 0 || column.taps == 0;
      int64_t wanted = isEmpty
                           ? 8 * rowsPerItem * std::max<int64_t>(1, allTaps)
                           : int64_t(llvm::divideCeil(rowsPerItem * allTaps,
                                                      row.taps * column.taps));
      int64_t items = llvm::divideCeil(rows, std::max(tile, wanted));
      int64_t itemRows =
          llvm::alignTo(llvm::divideCeil(rows, items), uint64_t(tile));
      plan.classes.push_back(
          {plan.rowItems, rows, itemRows, row.count, column.count,
           reciprocal(row.count), reciprocal(column.count),
           (row.source * x.sourceSize + column.source) * product.channels,
           (row.target * x.targetSize + column.target) * product.targetChannels,
           isEmpty ? 0 : row.taps, isEmpty ? 0 : column.taps,
           (row.firstTap * int64_t(x.taps.size()) + column.firstTap) *
               product.channels});
      plan.rowItems += llvm::divideCeil(rows, itemRows);
    }
}

// The panels are read anew for each item of rows and the source for each item
// of columns, both from the second cache or further away.
static double itemCost(int64_t rows, int64_t columns, int64_t items) {
  double balance = estimateImbalance(items);
  // Workers that finish early take over items of others.
  double waiting = 1 + 2.0 / items;
  return (1 + 8.0 / rows + 8.0 / columns) * balance * waiting + 0.0005 * items;
}

// Of the largest item that has more than one block of depth.
static int64_t countSums(const SlidingProduct &product,
                         const SlidingPlan &plan) {
  if (!product.types.areResultsRounded() || plan.block.isWhole(product))
    return 0;
  int64_t rows = 0;
  for (const auto &fields : plan.classes)
    if (fields[kTapRows] * fields[kTapColumns] != 0)
      rows = std::max(rows, fields[kItemRows]);
  return llvm::alignTo(rows * plan.itemColumns,
                       64 / product.types.computedBytes());
}

SlidingPlan planSliding(const SlidingProduct &product, const CpuTarget &target,
                        const ConvolutionTuning &tuning) {
  SlidingPlan plan;
  int64_t bytes = product.types.computedBytes();
  plan.tile = chooseTile(target);
  plan.width = plan.tile.vectors * target.lanes(bytes);
  plan.panels = llvm::divideCeil(product.targetChannels, plan.width);
  // Panels that all start in the same cache set would evict each other.
  plan.panelStride =
      product.tapCount() * product.channels * plan.width + 64 / bytes;
  plan.block = chooseBlock(product, bytes == 4 ? 640 : 320);
  int64_t depth = plan.block.rows * plan.block.columns * plan.block.channels;
  int64_t rowLimit =
      std::max<int64_t>(4, target.l2Bytes * tuning.sourceCachePercent / 100 /
                               (depth * bytes * plan.tile.rows));
  rowLimit *= plan.tile.rows;
  double best = 0;
  int64_t bestRows = 0;
  for (int64_t rows = plan.tile.rows; rows <= rowLimit;
       rows += std::max<int64_t>(plan.tile.rows, rows / 4))
    for (int64_t columnItems = 1; columnItems <= plan.panels; ++columnItems) {
      int64_t perItem = llvm::divideCeil(plan.panels, columnItems);
      cutRows(product, rows, plan);
      // Items with fewer panels finish early; the stage waits for full ones.
      double waste = double(perItem * columnItems) / plan.panels;
      double cost = waste * itemCost(rows, perItem * plan.width,
                                     plan.rowItems * columnItems);
      if (best != 0 && cost >= best)
        continue;
      best = cost;
      bestRows = rows;
      plan.itemColumns = perItem * plan.width;
    }
  if (tuning.itemRows)
    bestRows = llvm::alignTo(tuning.itemRows, uint64_t(plan.tile.rows));
  if (tuning.itemColumns)
    plan.itemColumns =
        llvm::alignTo(std::min(tuning.itemColumns, product.targetChannels),
                      uint64_t(plan.width));
  plan.columnItems = llvm::divideCeil(product.targetChannels, plan.itemColumns);
  cutRows(product, bestRows, plan);
  plan.sumsSize = countSums(product, plan);
  return plan;
}

} // namespace kiln::cpu
