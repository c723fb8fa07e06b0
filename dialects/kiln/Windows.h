// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_DIALECTS_KILN_WINDOWS_H
#define KILN_DIALECTS_KILN_WINDOWS_H

#include "mlir/IR/BuiltinTypes.h"

#include "llvm/Support/MathExtras.h"

namespace kiln {

/// Windows along one dimension of an image.
struct WindowAxis {
  int64_t size;    ///< Elements of the image.
  int64_t count;   ///< Windows.
  int64_t window;  ///< Elements of a window.
  int64_t stride;  ///< From window to window.
  int64_t padding; ///< Before the image, and as much behind it.

  /// Strides that cover all windows.
  int64_t blocks() const {
    return count - 1 + llvm::divideCeil(window, stride);
  }
  /// Padding added behind the image to fill the blocks; negative if no window
  /// reaches the end.
  int64_t behind() const { return blocks() * stride - padding - size; }
};

/// Windows that slide over images [batch, height, width, channels]; each gives
/// one position of the result.
struct Windows {
  WindowAxis rows, columns;

  static Windows get(mlir::RankedTensorType image,
                     mlir::RankedTensorType result,
                     llvm::ArrayRef<int64_t> window,
                     llvm::ArrayRef<int64_t> strides,
                     llvm::ArrayRef<int64_t> padding) {
    auto axis = [&](int64_t number) {
      return WindowAxis{image.getDimSize(1 + number),
                        result.getDimSize(1 + number), window[number],
                        strides[number], padding[number]};
    };
    return {axis(0), axis(1)};
  }
};

} // namespace kiln

#endif // KILN_DIALECTS_KILN_WINDOWS_H
