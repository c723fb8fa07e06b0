// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_CONVOLUTION_EMITCONVOLUTION_H
#define KILN_COMPILER_BACKEND_CPU_CONVOLUTION_EMITCONVOLUTION_H

#include "compiler/backend/cpu/ObjectCode.h"
#include "dialects/kiln/Windows.h"

namespace kiln::cpu {

/// Images [batch, height, width, inputs], filter [outputs, inputs, window],
/// result [batch, windows, outputs]; f32 or f64.
struct ConvolutionShape {
  int64_t batch;
  Windows windows;
  int64_t inputs, outputs;
  mlir::Type elementType;
};

/// Buffers: image, filter, result and scratch. Orders of additions are fixed by
/// the shape and the target here and below.
KernelCode emitConvolution(mlir::ModuleOp module, llvm::StringRef symbol,
                           const ConvolutionShape &shape,
                           const CpuTarget &target);

/// Buffers: gradient of the result, filter, gradient of the image and scratch.
KernelCode emitConvolutionGradInput(mlir::ModuleOp module,
                                    llvm::StringRef symbol,
                                    const ConvolutionShape &shape,
                                    const CpuTarget &target);

/// Buffers: image, gradient of the result, gradient of the filter and scratch.
KernelCode emitConvolutionGradWeight(mlir::ModuleOp module,
                                     llvm::StringRef symbol,
                                     const ConvolutionShape &shape,
                                     const CpuTarget &target);

/// Images [batch, height, width, channels] of f32 or f64.
struct PoolShape {
  int64_t batch;
  Windows windows;
  int64_t channels;
  mlir::Type elementType;
};

/// Buffers: image and result.
KernelCode emitMaxPool(mlir::ModuleOp module, llvm::StringRef symbol,
                       const PoolShape &shape, const CpuTarget &target);

/// Buffers: image, result, gradient of the result and gradient of the image.
KernelCode emitMaxPoolGradient(mlir::ModuleOp module, llvm::StringRef symbol,
                               const PoolShape &shape, const CpuTarget &target);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_CONVOLUTION_EMITCONVOLUTION_H
