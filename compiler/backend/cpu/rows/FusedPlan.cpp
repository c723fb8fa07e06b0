// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/rows/FusedPlan.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace kiln::cpu {

// Orders of summation, which belong to the kernel and not to its tuning. Chunks
// of rows do not depend on the workers. Registers per value in sums along rows
// do not depend on what else is fused, because recomputation must give the same
// numbers in other kernels.
constexpr int64_t kChunks = 16, kSumVectors = 2;

static int64_t chooseWidth(Block &body, const KernelDomain &domain,
                           const CpuTarget &target, const FusedTuning &tuning) {
  int64_t widest = 1;
  unsigned work = 0;
  bool hasSum = false;
  for (Operation &op : body.without_terminator()) {
    Value result = op.getResult(0);
    auto structured = dyn_cast<Structured>(op);
    hasSum |= !domain.isPoint(result) && structured &&
              structured.getReduction() == Reduction::sum;
    widest = std::max<int64_t>(
        widest,
        getElementTypeOrSelf(result.getType()).getIntOrFloatBitWidth() / 8);
    work += domain.isPoint(result) && op.getNumOperands() > 0;
  }
  if (domain.getColumns() == 1)
    return 1;
  int64_t lanes = target.lanes(std::max<int64_t>(widest, 4));
  int64_t vectors = hasSum                     ? kSumVectors
                    : work <= tuning.shortBody ? tuning.shortVectors
                                               : tuning.longVectors;
  int64_t width = lanes * vectors;
  while (width > lanes && width > domain.getColumns())
    width /= 2;
  return width;
}

int64_t FusedPlan::getPartialStride(Operation *op, const KernelDomain &domain) {
  int64_t size = domain.isPoint(op->getResult(0)) ? domain.getColumns() : 1;
  return llvm::alignTo(size, 16);
}

int64_t FusedPlan::getScratchBytes() const {
  if (scratchElements == 0)
    return 0;
  return llvm::alignTo(
      scratchElements * scratchType.getIntOrFloatBitWidth() / 8, 64);
}

static void addPartials(FusedPlan &plan, Operation *op,
                        const KernelDomain &domain) {
  plan.scratchType = getElementTypeOrSelf(op->getResult(0).getType());
  plan.partials[op] = plan.scratchElements;
  plan.scratchElements += FusedPlan::getPartialStride(op, domain) * plan.chunks;
}

static void planChunks(FusedPlan &plan, const KernelDomain &domain,
                       const RowAccess &access) {
  plan.form = FusedPlan::Form::chunks;
  int64_t rows = domain.getRows(), groups = domain.getGroups();
  plan.rowsPerChunk = llvm::divideCeil(rows, std::max(kChunks, groups));
  plan.chunksPerGroup = llvm::divideCeil(rows / groups, plan.rowsPerChunk);
  plan.chunks = groups * plan.chunksPerGroup;
  for (Operation *op : access.getOuter())
    addPartials(plan, op, domain);
  int64_t blocks = llvm::divideCeil(domain.getColumns(), plan.finishBlock);
  plan.stages = {{"_chunks", plan.chunks}, {"_finish", groups * blocks}};
}

static void planLongRow(FusedPlan &plan, const KernelDomain &domain,
                        const RowAccess &access) {
  plan.form = FusedPlan::Form::longRow;
  plan.chunks =
      llvm::divideCeil(domain.getColumns(), domain.getColumnsPerChunk());
  for (auto [number, pass] : llvm::enumerate(access.getPasses())) {
    for (Operation *op : pass.reductions)
      addPartials(plan, op, domain);
    plan.stages.push_back(
        {"_pass" + std::to_string(number), pass.walksRow() ? plan.chunks : 1});
  }
}

FusedPlan makePlan(Block &body, const KernelDomain &domain,
                   const RowAccess &access, const CpuTarget &target,
                   const FusedTuning &tuning) {
  FusedPlan plan;
  plan.width = chooseWidth(body, domain, target, tuning);
  plan.finishBlock = tuning.finishBlock;
  if (domain.isLongRow()) {
    planLongRow(plan, domain, access);
  } else if (!access.getOuter().empty()) {
    planChunks(plan, domain, access);
  } else if (domain.getRows() == 1 && domain.getPassCount() == 1) {
    plan.form = FusedPlan::Form::flat;
    int64_t columns = domain.getColumns();
    plan.flatBlock =
        llvm::alignTo(std::min(tuning.flatBlock, columns), plan.width);
    plan.stages = {{"", int64_t(llvm::divideCeil(columns, plan.flatBlock))}};
  } else {
    plan.stages = {{"", domain.getRows()}};
  }
  return plan;
}

} // namespace kiln::cpu
