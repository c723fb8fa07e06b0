// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Along which factor an op is cut: operands and preferred results propose the
// cuts that they have, and the cheapest is taken (see CutCost.h).
#include "compiler/shard/Partitioner.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace kiln::shard {

std::string CutCost::print() const {
  std::string text = std::to_string(weightBytes) + " weight bytes, " +
                     std::to_string(sampleBytes) + " bytes per sample";
  if (ignoresParameters)
    text += ", no parameter has it";
  if (ignoresPreferredResults)
    text += ", no result is preferred so";
  if (leavesPartialSums)
    text += ", leaves partial sums";
  return text + ", " + std::to_string(agreeingOperands) + " operands have it";
}

// Padding can be masked if zeros add nothing because the op is linear, or if
// the reduction has a neutral element.
static bool isMaskable(Operation *op) { return isa<Structured, Linear>(op); }

bool Partitioner::isPossible(Operation *op, const FactorRule &rule,
                             const Choice &choice, int64_t size) {
  if (rule.mustBeWhole[choice.factor])
    return false;
  if (choice.cut.blocks > 1 && rule.mustBeContiguous[choice.factor])
    return false;
  return !rule.isReduced(choice.factor) || !choice.cut.isPadded(size, mesh) ||
         isMaskable(op);
}

void Partitioner::addMovedBytes(Value full, const Sharding &wanted,
                                llvm::SmallDenseSet<Value> &priced,
                                CutCost &cost) {
  const Known &entry = known.find(full)->second;
  if (!priced.insert(full).second)
    return; // The op reads it twice.
  if (findVersion(entry, wanted) || (entry.local && entry.sharding == wanted))
    return;
  if (entry.local && isWidened(full) && entry.sharding.partial.empty())
    return addMovedBytes(full.getDefiningOp()->getOperand(0), wanted, priced,
                         cost);
  RankedTensorType type = tensorType(full);
  if (entry.local) {
    (type.hasStaticShape() ? cost.weightBytes : cost.sampleBytes) +=
        resharder.countMovedBytes(type, entry.sharding, wanted);
    return;
  }
  // A lazy value is rematerialised from its operands.
  Operation *op = full.getDefiningOp();
  if (FactorRule rule = *FactorRule::get(op); wanted.partial.empty())
    for (auto [operand, sharding] :
         llvm::zip_equal(op->getOperands(), inferLazyOperands(rule, wanted)))
      addMovedBytes(operand, sharding, priced, cost);
}

CutCost Partitioner::price(Operation *op, const FactorRule &rule,
                           const Choice &choice) {
  CutCost cost;
  cost.ignoresParameters = cost.ignoresPreferredResults = true;
  cost.leavesPartialSums = rule.isReduced(choice.factor);
  SmallVector<Axes> kept = keepPartial(op, choice);
  llvm::SmallDenseSet<Value> priced;
  for (auto [operand, dims, partial] :
       llvm::zip_equal(op->getOperands(), rule.operands, kept)) {
    Sharding wanted = apply(choice, dims);
    wanted.partial = partial;
    addMovedBytes(operand, wanted, priced, cost);
    auto dim = FactorRule::findDim(dims, choice.factor);
    if (!dim || isLazy(operand) ||
        getSharding(operand).dims[*dim] != choice.cut)
      continue;
    ++cost.agreeingOperands;
    if (tensorType(operand).hasStaticShape())
      cost.ignoresParameters = false;
  }
  for (auto [result, dims, sharding] :
       llvm::zip_equal(op->getResults(), rule.results,
                       inferResults(op, rule, choice, kept))) {
    RankedTensorType type = tensorType(result);
    Sharding target = sharding;
    if (rule.reduction == Reduction::max)
      target.partial.clear();
    target = settled(type, target);
    if (auto found = preferred.find(result); found != preferred.end()) {
      target.dims = found->second.dims;
      for (const Cut &cut : target.dims)
        llvm::erase_if(target.partial, [&](unsigned axis) {
          return llvm::is_contained(cut.axes, axis);
        });
      if (auto dim = FactorRule::findDim(dims, choice.factor);
          dim && target.dims[*dim] == choice.cut)
        cost.ignoresPreferredResults = false;
    }
    (type.hasStaticShape() ? cost.weightBytes : cost.sampleBytes) +=
        resharder.countMovedBytes(type, sharding, target);
  }
  return cost;
}

SmallVector<Partitioner::Candidate>
Partitioner::propose(Operation *op, const FactorRule &rule, bool isOfLazy) {
  SmallVector<Candidate> candidates;
  auto add = [&](Value value, ArrayRef<Cut> cuts, const FactorRule::Dims &dims,
                 StringRef kind, unsigned number) {
    for (auto [dim, cut] : llvm::enumerate(cuts)) {
      Choice choice{dims[dim], cut};
      bool isKnown = llvm::any_of(candidates, [&](const Candidate &candidate) {
        return candidate.choice.factor == choice.factor &&
               candidate.choice.cut == cut;
      });
      if (cut.isWhole() || isKnown ||
          !isPossible(op, rule, choice, tensorType(value).getDimSize(dim)))
        continue;
      candidates.push_back(
          {choice, price(op, rule, choice),
           ("dimension " + Twine(dim) + " of " + kind + " " + Twine(number))
               .str()});
    }
  };
  for (auto [number, operand] : llvm::enumerate(op->getOperands()))
    if (isLazy(operand) == isOfLazy)
      add(operand, getSharding(operand).dims, rule.operands[number], "operand",
          number);
  for (auto [number, result] : llvm::enumerate(op->getResults()))
    if (auto found = preferred.find(result); found != preferred.end())
      add(result, found->second.dims, rule.results[number], "result", number);
  return candidates;
}

void Partitioner::explain(Operation *op, ArrayRef<Candidate> candidates,
                          const Candidate *chosen) {
  if (!chosen) {
    op->emitRemark("is replicated: no operand has a cut that it can take");
    return;
  }
  auto describe = [&](Diagnostic &to, const Candidate &candidate) {
    to << "over ";
    llvm::interleave(
        candidate.choice.cut.axes,
        [&](unsigned axis) { to << mesh.names[axis]; }, [&] { to << ", "; });
    to << " along " << candidate.proposer << ": " << candidate.cost.print();
  };
  InFlightDiagnostic remark = op->emitRemark("is cut ");
  describe(*remark.getUnderlyingDiagnostic(), *chosen);
  for (const Candidate &candidate : candidates)
    if (&candidate != chosen)
      describe(remark.attachNote() << "instead of ", candidate);
}

// Lazy values can have any cut at no cost, so they propose theirs only if
// nothing else does.
std::optional<Partitioner::Choice> Partitioner::choose(Operation *op,
                                                       const FactorRule &rule) {
  SmallVector<Candidate> candidates = propose(op, rule, /*isOfLazy=*/false);
  if (candidates.empty())
    candidates = propose(op, rule, /*isOfLazy=*/true);
  const Candidate *chosen =
      llvm::min_element(candidates, [](const Candidate &a, const Candidate &b) {
        return a.cost < b.cost;
      });
  if (candidates.empty())
    chosen = nullptr;
  if (options.isExplained)
    explain(op, candidates, chosen);
  return chosen ? std::optional(chosen->choice) : std::nullopt;
}

} // namespace kiln::shard
