// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDEMITTER_H
#define KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDEMITTER_H

#include "compiler/backend/cpu/KernelBody.h"
#include "compiler/fuse/KernelDomain.h"

namespace kiln::cpu {

/// A place in the row: `width` columns from `column`, of which `mask` (if any)
/// are real.
struct Points {
  Points(mlir::Value column, mlir::Value mask, unsigned pass)
      : column(column), mask(mask), pass(pass) {}

  mlir::Value column;
  mlir::Value mask;
  unsigned pass;
  llvm::DenseMap<mlir::Value, mlir::Value> known;
};

class FusedEmitter {
public:
  FusedEmitter(mlir::ModuleOp module, llvm::StringRef symbol, mlir::Block &body,
               const KernelDomain &domain, const CpuTarget &target);
  StagePlan emit();

private:
  // Layout of the work.
  void chooseWidth(const CpuTarget &target);
  bool isFlat() const {
    return domain.getRows() == 1 && domain.getPassCount() == 1 && outer.empty();
  }
  int64_t rowsPerGroup() const { return domain.getRows() / domain.getGroups(); }
  int64_t chunksPerGroup() const {
    return llvm::divideCeil(rowsPerGroup(), rowsPerChunk);
  }
  int64_t getChunks() const { return domain.getGroups() * chunksPerGroup(); }

  // Stages.
  void emitRows();
  void emitFlat();
  void emitChunks();
  void emitFinish();
  void finishReduction(mlir::Operation *op, mlir::Value group,
                       mlir::Value column, int64_t columns);
  mlir::func::FuncOp startStage(llvm::StringRef name, int64_t items);
  void forRange(mlir::Value begin, mlir::Value end, int64_t step,
                llvm::function_ref<void(mlir::Value)> emitBody);

  // One row.
  void emitRow(mlir::Value row);
  void emitPass(unsigned pass);
  void emitColumns(unsigned pass, int64_t begin, int64_t end);
  llvm::SmallVector<mlir::Value>
  emitPoints(Points &points, llvm::ArrayRef<mlir::Value> accumulators);
  void storeRowResults();
  void accumulateOuter(mlir::Operation *op, mlir::Value value, Points *points);

  // Values.
  void prepareRow();
  mlir::Value rowValue(mlir::Value value);
  mlir::Value pointValue(mlir::Value value, Points &points);
  mlir::Value computePoint(mlir::Value value, Points &points);
  mlir::Value widen(mlir::Value scalar);
  mlir::Value gather(EmbeddingOp op, Points &points);
  mlir::Value columnNumbers(IotaOp op, Points &points);
  mlir::Value rowBase(mlir::Value value);
  mlir::Value loadPoints(mlir::Value buffer, mlir::Value position,
                         mlir::Type element, mlir::Value mask);
  void storePoints(mlir::Value value, mlir::Value buffer, mlir::Value position,
                   mlir::Value mask);
  mlir::Value tailMask(int64_t count);

  mlir::Value input(mlir::BlockArgument argument) {
    return stage.getArgument(argument.getArgNumber());
  }
  mlir::Value output(unsigned index) {
    return stage.getArgument(body.getNumArguments() + index);
  }
  mlir::Value scratch() {
    return stage.getArgument(body.getNumArguments() + results.size());
  }
  IndexBuilder index() { return {builder, loc}; }

  mlir::ModuleOp module;
  std::string symbol;
  mlir::Block &body;
  const KernelDomain &domain;
  mlir::OpBuilder builder;
  mlir::Location loc;
  mlir::func::FuncOp stage;
  StagePlan code;
  int64_t width = 1, rowsPerChunk = 1, scratchElements = 0;
  mlir::Type scratchType;
  llvm::SmallVector<mlir::Value> results;     // What the kernel yields.
  llvm::SmallVector<mlir::Operation *> outer; // Reductions over all rows.
  llvm::DenseMap<mlir::Operation *, int64_t>
      partials; // Where their partial sums start.
  llvm::DenseMap<mlir::Value, unsigned> resultOf;

  // Of the row being emitted.
  llvm::SmallVector<mlir::Value> rowIndices;
  llvm::DenseMap<mlir::Value, mlir::Value> rowKnown, rowBases;
  mlir::Value chunk;
  llvm::SmallVector<mlir::Operation *> passReductions;
};

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDEMITTER_H
