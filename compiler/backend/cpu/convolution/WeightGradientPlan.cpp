// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/convolution/WeightGradientPlan.h"

#include "compiler/backend/cpu/MicroKernel.h"

using namespace mlir;

namespace kiln::cpu {

namespace {

/// Windows of an axis that see the image through one tap.
struct Seen {
  int64_t first, end;
};

} // namespace

static Seen findSeen(const WindowAxis &axis, int64_t tap) {
  int64_t before = std::max<int64_t>(0, axis.padding - tap);
  int64_t behind = axis.size - 1 + axis.padding - tap;
  int64_t end = behind < 0 ? 0 : std::min(axis.count, behind / axis.stride + 1);
  return {int64_t(llvm::divideCeil(before, axis.stride)), end};
}

static void listTaps(const Windows &windows, WeightPlan &plan) {
  const WindowAxis &y = windows.rows, &x = windows.columns;
  for (int64_t row = 0; row < y.window; ++row) {
    Seen rows = findSeen(y, row);
    if (rows.first >= rows.end)
      continue;
    if (plan.folds) {
      plan.taps.push_back(
          {row, rows.first, rows.end, 0, 0, x.count, row * x.window});
      continue;
    }
    for (int64_t column = 0; column < x.window; ++column) {
      Seen columns = findSeen(x, column);
      if (columns.first >= columns.end)
        continue;
      int64_t packed = column % x.stride * plan.packedColumns +
                       column / x.stride + columns.first;
      plan.taps.push_back({row, rows.first, rows.end, columns.first, packed,
                           columns.end - columns.first,
                           row * x.window + column});
    }
  }
}

// Blocks are as deep as a panel that stays in the first cache.
static void chooseBlocks(const ConvolutionShape &shape, int64_t depth,
                         WeightPlan &plan) {
  int64_t height = shape.windows.rows.count,
          width = shape.windows.columns.count;
  // Images missing from the last block are computed as zeros: slightly smaller
  // blocks may leave none.
  int64_t most = std::clamp<int64_t>(depth / (height * width), 1, shape.batch);
  auto padded = [&](int64_t images) {
    return llvm::alignTo(shape.batch, uint64_t(images));
  };
  plan.images = most;
  for (int64_t images = most; images > most / 2; --images)
    if (padded(images) < padded(plan.images))
      plan.images = images;
  plan.imageBlocks = llvm::divideCeil(shape.batch, plan.images);
  int64_t rows = std::clamp<int64_t>(depth / (width * plan.images), 1, height);
  plan.rowBlocks = llvm::divideCeil(height, rows);
  plan.rows = llvm::divideCeil(height, plan.rowBlocks);
  plan.rowBlocks = llvm::divideCeil(height, plan.rows);
}

// Items are cut until the sum of one stays in the second cache and there are
// enough for the workers.
static void chooseItems(const CpuTarget &target, int64_t bytes,
                        const FilterGradientTuning &tuning, WeightPlan &plan) {
  constexpr int64_t kMostShares = 16;
  constexpr int64_t kSumLimit = 4 << 20; // Of all shares, in bytes.
  int64_t blocks = plan.imageBlocks * plan.rowBlocks;
  plan.sumSize = int64_t(plan.taps.size()) * plan.panels * plan.width *
                 plan.tiles * plan.tileRows;
  int64_t sumBytes = std::max<int64_t>(1, plan.sumSize * bytes);
  int64_t shares = std::clamp<int64_t>(kSumLimit / sumBytes, 1,
                                       std::min(blocks, kMostShares));
  plan.blocksPerShare = llvm::divideCeil(blocks, shares);
  plan.shares = llvm::divideCeil(blocks, plan.blocksPerShare);
  plan.outputGroups = plan.columnGroups = 1;
  auto isLarge = [&] {
    int64_t groups = plan.outputGroups * plan.columnGroups;
    return sumBytes / groups > target.l2Bytes * tuning.sumCacheEighths / 8 ||
           plan.shares * groups < tuning.enoughItems;
  };
  while (isLarge()) {
    int64_t tiles = plan.tiles / (2 * plan.outputGroups);
    // A folded window is packed for all its panels.
    int64_t panels = plan.folds ? 0 : plan.panels / (2 * plan.columnGroups);
    if (tiles * plan.tileRows >= panels * plan.width && tiles > 0)
      plan.outputGroups *= 2;
    else if (panels > 0)
      plan.columnGroups *= 2;
    else
      break;
  }
  plan.groupTiles = llvm::divideCeil(plan.tiles, plan.outputGroups);
  plan.groupPanels = llvm::divideCeil(plan.panels, plan.columnGroups);
  plan.outputGroups = llvm::divideCeil(plan.tiles, plan.groupTiles);
  plan.columnGroups = llvm::divideCeil(plan.panels, plan.groupPanels);
}

WeightPlan planWeightGradient(const ConvolutionShape &shape,
                              const CpuTarget &target,
                              const FilterGradientTuning &tuning) {
  WeightPlan plan;
  const WindowAxis &y = shape.windows.rows, &x = shape.windows.columns;
  int64_t bytes = shape.types.computedBytes();
  int64_t lanes = target.lanes(bytes);
  TileShape tile = chooseTile(target);
  plan.folds = shape.inputs < lanes && x.window > 1;
  plan.columns = plan.folds ? shape.inputs * x.window : shape.inputs;
  // Narrow panels leave registers for more rows.
  plan.vectors =
      std::min<int64_t>(tile.vectors, llvm::divideCeil(plan.columns, lanes));
  plan.tileRows = tile.rows * tile.vectors / plan.vectors;
  plan.width = plan.vectors * lanes;
  plan.tiles = llvm::divideCeil(shape.outputs, plan.tileRows);
  plan.panels = llvm::divideCeil(plan.columns, plan.width);
  plan.phases = plan.folds ? 1 : std::min(x.stride, x.window);
  plan.packedColumns =
      plan.folds ? x.count : (x.size - 1 + x.padding) / x.stride + 1;
  chooseBlocks(shape, bytes == 4 ? 400 : 200, plan);
  listTaps(shape.windows, plan);
  chooseItems(target, bytes, tuning, plan);
  plan.packedRows = (plan.rows - 1) * y.stride + y.window;
  int64_t gap = 64; // Keeps panels out of each other's cache sets.
  plan.tileStride = llvm::alignTo(
      plan.rows * x.count * plan.images * plan.tileRows + gap, 16);
  plan.panelStride = plan.packedRows * plan.phases * plan.packedColumns *
                         plan.images * plan.width +
                     gap;
  plan.sharedSize = llvm::alignTo(plan.shares * plan.sumSize, 16);
  plan.workerSize = llvm::alignTo(plan.groupTiles * plan.tileStride +
                                      plan.groupPanels * plan.panelStride,
                                  16);
  return plan;
}

} // namespace kiln::cpu
