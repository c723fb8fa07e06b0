// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDEMITTER_H
#define KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDEMITTER_H

#include "compiler/backend/cpu/KernelBody.h"
#include "compiler/backend/cpu/rows/FusedPlan.h"

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

/// Writes the code of a plan. It decides nothing itself.
class FusedEmitter {
public:
  FusedEmitter(mlir::ModuleOp module, llvm::StringRef symbol, mlir::Block &body,
               const KernelDomain &domain, const RowAccess &access,
               const FusedPlan &plan)
      : module(module), symbol(symbol.str()), body(body), domain(domain),
        access(access), plan(plan), builder(module.getContext()),
        loc(module.getLoc()), results(body.getTerminator()->getOperands()),
        width(plan.width) {}
  void emit();

private:
  // Stages.
  void emitRows();
  void emitFlat();
  void emitChunks();
  void emitFinish();
  void emitLongRow();
  void finishReduction(mlir::Operation *op, mlir::Value group,
                       mlir::Value column, int64_t columns);
  void emitLongPass(unsigned pass);
  void startStage();
  void forRange(mlir::Value begin, mlir::Value end, int64_t step,
                llvm::function_ref<void(mlir::Value)> emitBody);

  // One row.
  void emitRow(mlir::Value row);
  void emitPass(unsigned pass);
  llvm::SmallVector<mlir::Value> startReductions(unsigned pass);
  llvm::SmallVector<mlir::Value>
  walkColumns(unsigned pass, mlir::Value begin, mlir::Value end,
              llvm::ArrayRef<mlir::Value> accumulators);
  llvm::SmallVector<mlir::Value>
  walkTail(unsigned pass, llvm::ArrayRef<mlir::Value> accumulators);
  mlir::Value reduceLanes(mlir::Operation *op, mlir::Value accumulator);
  /// Columns that are walked by whole vectors.
  int64_t wholeColumns() const { return domain.getColumns() / width * width; }
  llvm::SmallVector<mlir::Value>
  emitPoints(Points &points, llvm::ArrayRef<mlir::Value> accumulators);
  void storeRowResults();
  void storeSharedResults();
  mlir::Value isFirstRowOf(mlir::Value value);
  void accumulateOuter(mlir::Operation *op, mlir::Value value, Points *points);
  mlir::Value partialPlace(mlir::Operation *op, mlir::Value number);
  mlir::Value combinePartials(mlir::Operation *op, mlir::Value first,
                              int64_t count, mlir::Value column);
  /// Writes code for the worker that has the last item of the stage.
  void ifLastItem(llvm::function_ref<void()> emitBody);

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
  const RowAccess &access;
  const FusedPlan &plan;
  mlir::OpBuilder builder;
  mlir::Location loc;
  mlir::func::FuncOp stage;
  const FusedPlan::Stage *current = nullptr; // The stage being written.
  llvm::SmallVector<mlir::Value> results;    // Yielded values.
  const int64_t width;

  // Of the row being emitted.
  llvm::SmallVector<mlir::Value> rowIndices;
  llvm::DenseMap<mlir::Value, mlir::Value> rowKnown, rowBases;
  mlir::Value chunk;
};

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_ROWS_FUSEDEMITTER_H
