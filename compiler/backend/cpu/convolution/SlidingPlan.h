// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_CONVOLUTION_SLIDINGPLAN_H
#define KILN_COMPILER_BACKEND_CPU_CONVOLUTION_SLIDINGPLAN_H

#include "compiler/backend/cpu/MicroKernel.h"
#include "compiler/backend/cpu/convolution/EmitConvolution.h"

#include <array>

namespace kiln::cpu {

/// Places of the target along one axis that see the same taps.
struct PlaceClass {
  int64_t target, count;  ///< The first place, and how many.
  int64_t source;         ///< Seen by the first tap of the first place.
  int64_t firstTap, taps; ///< In the order of AxisPlan::taps.
};

struct AxisPlan {
  int64_t sourceSize, targetSize;
  int64_t sourceStep, targetStep; ///< From place to place of a class.
  /// Taps of the filter, such that the next tap of a class sees the next
  /// element of the source.
  llvm::SmallVector<int64_t> taps;
  llvm::SmallVector<PlaceClass> classes;

  void add(const PlaceClass &place) {
    if (!classes.empty()) {
      PlaceClass &last = classes.back();
      if (last.target + last.count * targetStep == place.target &&
          last.firstTap == place.firstTap && last.taps == place.taps) {
        ++last.count;
        return;
      }
    }
    classes.push_back(place);
  }
};

/// A product over windows: target[place, column] is the sum over taps and
/// channels of source[place + tap, channel] filter[channel, column, tap].
struct SlidingProduct {
  int64_t batch;
  AxisPlan rows, columns;
  int64_t channels, targetChannels;
  int64_t channelStride, targetStride; ///< In the filter.
  int64_t filterWidth, filterSize;
  ElementTypes types;

  int64_t tapCount() const { return rows.taps.size() * columns.taps.size(); }
};

/// The axis of a convolution, and that of its gradient by the image.
AxisPlan planForward(const WindowAxis &axis);
AxisPlan planGradient(const WindowAxis &axis);

/// A product of a class of rows and one of columns, as the kernel reads it.
/// Offsets count elements.
enum ClassField : int64_t {
  kFirstItem,
  kRows,       ///< Places in all images.
  kItemRows,   ///< Of one item.
  kHeight,     ///< Places of one image.
  kWidth,      ///< The same.
  kOverHeight, ///< 2^32 divided by them, rounded up.
  kOverWidth,
  kSource, ///< Of the first place of the first image.
  kTarget, ///< The same.
  kTapRows,
  kTapColumns,
  kPanelRow, ///< Of the first tap.
  kClassFieldCount
};

/// Filter rows, taps of a row and channels that are multiplied at once, so that
/// this depth of a panel stays in the first cache.
struct DepthBlock {
  int64_t rows, columns, channels;

  /// Whether it is all of the depth.
  bool isWhole(const SlidingProduct &product) const {
    return rows >= int64_t(product.rows.taps.size()) &&
           columns >= int64_t(product.columns.taps.size()) &&
           channels >= product.channels;
  }
};

struct SlidingPlan {
  TileShape tile;
  int64_t width;
  int64_t panels, panelStride;
  DepthBlock block;
  int64_t rowItems, columnItems, itemColumns;
  int64_t sumsSize; ///< Of an item, of each worker; 0 if the target has them.
  llvm::SmallVector<std::array<int64_t, kClassFieldCount>> classes;
};

SlidingPlan planSliding(const SlidingProduct &product, const CpuTarget &target,
                        const ConvolutionTuning &tuning);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_CONVOLUTION_SLIDINGPLAN_H
