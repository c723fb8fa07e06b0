// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/differentiate/SampleSums.h"
#include "dialects/kiln/Composer.h"

using namespace mlir;

namespace kiln {

namespace {

/// Dependence of a value on the batch.
enum class Kind { fixed, ofSamples, summed };

class SampleSums {
public:
  LogicalResult visit(Operation &op);
  Kind get(Value value) const {
    if (!tensorType(value).hasStaticShape())
      return Kind::ofSamples;
    return summed.contains(value) ? Kind::summed : Kind::fixed;
  }

private:
  bool isLinearInSums(Operation &op) const;
  llvm::DenseSet<Value> summed;
};

} // namespace

// Sums may be added to each other, and scaled by values independent of samples.
bool SampleSums::isLinearInSums(Operation &op) const {
  auto linear = dyn_cast<Linear>(op);
  return linear &&
         llvm::any_of(linear.getLinearGroups(), [&](const auto &group) {
           return llvm::all_of(llvm::enumerate(op.getOperands()), [&](auto it) {
             return get(it.value()) == (llvm::is_contained(group, it.index())
                                            ? Kind::summed
                                            : Kind::fixed);
           });
         });
}

LogicalResult SampleSums::visit(Operation &op) {
  auto has = [&](ValueRange values, Kind kind) {
    return llvm::any_of(values, [&](Value v) { return get(v) == kind; });
  };
  bool readsSums = has(op.getOperands(), Kind::summed),
       readsSamples = has(op.getOperands(), Kind::ofSamples);
  if (readsSums && !isLinearInSums(op))
    return op.emitOpError(
        "uses a batch sum non-linearly; losses may only add or scale such "
        "sums, or they would depend on micro-batches and replicas");
  for (Value result : op.getResults()) {
    if (get(result) == Kind::ofSamples || !(readsSums || readsSamples))
      continue;
    auto structured = dyn_cast<Structured>(op);
    if (readsSamples && structured &&
        structured.getReduction() != Reduction::sum)
      return op.emitOpError("takes the greatest of the batch; wanted a sum, or "
                            "losses would depend on micro-batches and "
                            "replicas");
    summed.insert(result);
  }
  return success();
}

LogicalResult verifySampleSums(func::FuncOp function) {
  SampleSums sums;
  bool hasBatch = llvm::any_of(function.getArguments(), [&](Value argument) {
    return sums.get(argument) == Kind::ofSamples;
  });
  if (!hasBatch)
    return success();
  for (Operation &op : function.front().without_terminator())
    if (failed(sums.visit(op)))
      return failure();
  for (auto [index, value] :
       llvm::enumerate(function.front().getTerminator()->getOperands()))
    if (!function.getResultAttr(index, kDenominatorAttribute) &&
        !function.getResultAttr(index, kRunningAttribute) &&
        sums.get(value) != Kind::summed)
      return function.emitError("returns total ")
             << index << ", which is no sum over the batch '?'";
  return success();
}

} // namespace kiln
