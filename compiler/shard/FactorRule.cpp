// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/shard/FactorRule.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace kiln {

static FactorRule fromMaps(Structured op) {
  FactorRule rule;
  SmallVector<AffineMap> maps = op.getLoopMaps();
  for (AffineMap map : maps) {
    FactorRule::Dims dims;
    for (unsigned position = 0; position < map.getNumResults(); ++position)
      dims.push_back(map.getDimPosition(position));
    rule.operands.push_back(dims);
  }
  rule.results = {rule.operands.pop_back_val()};
  rule.mustBeWhole.assign(maps.front().getNumDims(), false);
  rule.mustBeContiguous = rule.mustBeWhole;
  rule.reduction = op.getReduction();
  return rule;
}

static FactorRule fromEquation(Factored op) {
  FactorRule rule;
  rule.reduction = Reduction::sum;
  std::string equation = op.getFactors();
  auto read = [&](StringRef lists, unsigned count,
                  SmallVector<FactorRule::Dims> &into) {
    if (count == 0)
      return;
    SmallVector<StringRef> parts;
    lists.split(parts, ',');
    for (StringRef part : parts) {
      FactorRule::Dims dims;
      for (char letter : part) {
        size_t factor = rule.letters.find(letter);
        if (factor == std::string::npos) {
          factor = rule.letters.size();
          rule.letters += letter;
          rule.mustBeWhole.push_back(llvm::isUpper(letter));
        }
        dims.push_back(factor);
      }
      into.push_back(dims);
    }
  };
  auto [inputs, outputs] = StringRef(equation).split("->");
  read(inputs, op->getNumOperands(), rule.operands);
  read(outputs, op->getNumResults(), rule.results);
  auto placed = dyn_cast<Placed>(op.getOperation());
  StringRef contiguous = placed ? placed.getContiguousFactors() : "";
  for (char letter : rule.letters)
    rule.mustBeContiguous.push_back(contiguous.contains(letter));
  return rule;
}

std::optional<FactorRule> FactorRule::get(Operation *op) {
  if (auto structured = dyn_cast<Structured>(op))
    return fromMaps(structured);
  if (auto factored = dyn_cast<Factored>(op))
    return fromEquation(factored);
  return std::nullopt;
}

std::optional<unsigned> FactorRule::findDim(const Dims &dims, unsigned factor) {
  auto found = llvm::find(dims, factor);
  if (found == dims.end())
    return std::nullopt;
  return found - dims.begin();
}

bool FactorRule::isReduced(unsigned factor) const {
  return llvm::any_of(results, [&](const Dims &dims) {
    return !llvm::is_contained(dims, factor);
  });
}

} // namespace kiln
