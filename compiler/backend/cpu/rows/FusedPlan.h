// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDPLAN_H
#define KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDPLAN_H

#include "compiler/backend/cpu/CpuTarget.h"
#include "compiler/fuse/RowAccess.h"

namespace kiln::cpu {

/// Choices that change how fast a fused kernel is and not what it computes.
struct FusedTuning {
  int64_t shortBody = 10;   // Point ops up to which a body counts as short.
  int64_t shortVectors = 4; // Registers per value: they hide latency,
  int64_t longVectors = 2;  // but would spill in long bodies.
  int64_t flatBlock = 4096; // Columns of an item where a row is shared.
  int64_t finishBlock = 64; // Columns of an item that adds partial sums.

  template <typename Self, typename Field>
  static void visit(Self &self, Field field) {
    field("short_body", self.shortBody);
    field("short_vectors", self.shortVectors);
    field("long_vectors", self.longVectors);
    field("flat_block", self.flatBlock);
    field("finish_block", self.finishBlock);
  }
};

/// How a fused kernel is laid out, fixed before any code is written.
struct FusedPlan {
  enum class Form {
    rows,    // An item is a row.
    flat,    // One row in one pass: an item is a block of columns.
    chunks,  // Reductions over rows: an item is a chunk of rows; then finish.
    longRow, // One row with reductions: an item of each pass is a chunk of it.
  };
  struct Stage {
    std::string suffix;
    int64_t items;
  };

  Form form = Form::rows;
  int64_t width = 1; // Lanes of a value.
  int64_t rowsPerChunk = 1, chunksPerGroup = 1, chunks = 1;
  int64_t flatBlock = 0, finishBlock = 0;
  mlir::Type scratchType;
  int64_t scratchElements = 0;
  /// Where the partial results of a reduction begin, in elements of scratch.
  llvm::DenseMap<mlir::Operation *, int64_t> partials;
  llvm::SmallVector<Stage> stages;

  int64_t getScratchBytes() const;
  /// Elements from the partial results of a chunk to those of the next: chunks
  /// share no cache line.
  static int64_t getPartialStride(mlir::Operation *op,
                                  const KernelDomain &domain);
};

FusedPlan makePlan(mlir::Block &body, const KernelDomain &domain,
                   const RowAccess &access, const CpuTarget &target,
                   const FusedTuning &tuning);

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDPLAN_H
