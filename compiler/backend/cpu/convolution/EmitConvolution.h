// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_CONVOLUTION_EMITCONVOLUTION_H
#define KILN_COMPILER_BACKEND_CPU_CONVOLUTION_EMITCONVOLUTION_H

#include "compiler/backend/KernelForm.h"
#include "compiler/backend/cpu/ObjectCode.h"
#include "compiler/backend/cpu/gemm/EmitGemm.h"

namespace kiln::cpu {

/// Tuning of the result and of the gradient of the image. The blocks of depth
/// fix the order of summation; items are free.
struct ConvolutionTuning {
  int64_t sourceCachePercent = 25; ///< Of the second cache, for an item's rows.
  int64_t itemRows = 0;            ///< 0: chosen by estimated cost.
  int64_t itemColumns = 0;         ///< The same.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("source_cache_percent", self.sourceCachePercent);
    field("item_rows", self.itemRows);
    field("item_columns", self.itemColumns);
  }
};

/// Tuning of the gradient of the filter. Blocks and shares fix the order of
/// summation; the grouping of outputs and columns is free.
struct FilterGradientTuning {
  int64_t enoughItems = 16;
  int64_t sumCacheEighths = 3; ///< Of the second cache, for an item's sums.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("enough_items", self.enoughItems);
    field("sum_cache_eighths", self.sumCacheEighths);
  }
};

/// A convolution of one tap that every place sees: the places of all images
/// are the rows of a matrix, and the kernel of matrix products serves it.
std::optional<GemmShape> asMatrixProduct(const ConvolutionForm &form);

StagePlan planConvolution(llvm::StringRef symbol, const ConvolutionShape &shape,
                          const CpuTarget &target,
                          const ConvolutionTuning &tuning);
StagePlan planConvolutionGradInput(llvm::StringRef symbol,
                                   const ConvolutionShape &shape,
                                   const CpuTarget &target,
                                   const ConvolutionTuning &tuning);
StagePlan planConvolutionGradWeight(llvm::StringRef symbol,
                                    const ConvolutionShape &shape,
                                    const CpuTarget &target,
                                    const FilterGradientTuning &tuning);

/// Buffers: image, filter, result and scratch. Orders of additions are fixed by
/// the shape and the target here and below.
StagePlan emitConvolution(mlir::ModuleOp module, llvm::StringRef symbol,
                          const ConvolutionShape &shape,
                          const CpuTarget &target,
                          const ConvolutionTuning &tuning = {});

/// Buffers: gradient of the result, filter, gradient of the image and scratch.
StagePlan emitConvolutionGradInput(mlir::ModuleOp module,
                                   llvm::StringRef symbol,
                                   const ConvolutionShape &shape,
                                   const CpuTarget &target,
                                   const ConvolutionTuning &tuning = {});

/// Buffers: image, gradient of the result, gradient of the filter and scratch.
StagePlan emitConvolutionGradWeight(mlir::ModuleOp module,
                                    llvm::StringRef symbol,
                                    const ConvolutionShape &shape,
                                    const CpuTarget &target,
                                    const FilterGradientTuning &tuning = {});

struct PoolTuning {
  int64_t registers = 4; ///< Of channels that are compared together.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("registers", self.registers);
  }
};

StagePlan planMaxPool(llvm::StringRef symbol, const PoolShape &shape,
                      const CpuTarget &target, const PoolTuning &tuning);
StagePlan planMaxPoolGradient(llvm::StringRef symbol, const PoolShape &shape,
                              const CpuTarget &target,
                              const PoolTuning &tuning);

/// Buffers: image and result.
StagePlan emitMaxPool(mlir::ModuleOp module, llvm::StringRef symbol,
                      const PoolShape &shape, const CpuTarget &target,
                      const PoolTuning &tuning = {});

/// Buffers: image, result, gradient of the result and gradient of the image.
StagePlan emitMaxPoolGradient(mlir::ModuleOp module, llvm::StringRef symbol,
                              const PoolShape &shape, const CpuTarget &target,
                              const PoolTuning &tuning = {});

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_CONVOLUTION_EMITCONVOLUTION_H
