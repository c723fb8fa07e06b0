// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_CONVOLUTION_WEIGHTGRADIENTPLAN_H
#define KILN_COMPILER_BACKEND_CPU_CONVOLUTION_WEIGHTGRADIENTPLAN_H

#include "compiler/backend/cpu/convolution/EmitConvolution.h"

#include <array>

namespace kiln::cpu {

/// Positions of the operands of a tap. Columns are those of packed rows.
enum TapField : int64_t {
  kTapRow,
  kFirstRow, ///< Of the result, where the tap sees the image.
  kEndRow,
  kGradColumn,
  kImageColumn,
  kColumns, ///< How many.
  kOffset,  ///< In the filter.
  kTapFieldCount
};

struct WeightPlan {
  int64_t tileRows, width, vectors;
  bool folds;            ///< Taps of a filter row are columns.
  int64_t columns;       ///< Of the product: inputs, or inputs times taps.
  int64_t tiles, panels; ///< Of all outputs and columns.
  int64_t images, rows;  ///< Of the result, in a block.
  int64_t imageBlocks, rowBlocks;
  int64_t shares; ///< Of the blocks, each with a sum of its own.
  int64_t blocksPerShare;
  int64_t outputGroups, columnGroups;
  int64_t groupTiles, groupPanels;
  int64_t packedRows, phases, packedColumns; ///< Of the image.
  int64_t tileStride, panelStride;           ///< Packed elements.
  int64_t sumSize, sharedSize, workerSize;
  llvm::SmallVector<std::array<int64_t, kTapFieldCount>> taps;
};

WeightPlan planWeightGradient(const ConvolutionShape &shape,
                              const CpuTarget &target,
                              const FilterGradientTuning &tuning);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_CONVOLUTION_WEIGHTGRADIENTPLAN_H
