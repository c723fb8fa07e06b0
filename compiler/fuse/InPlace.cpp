// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/fuse/InPlace.h"
#include "compiler/fuse/KernelDomain.h"

using namespace mlir;

namespace kiln {

namespace {

/// Which pass over a row reads each input last. A value that an earlier pass
/// has stored is read back from there.
class LastReads {
public:
  LastReads(Block &body, const KernelDomain &domain) : domain(domain) {
    auto outputs = body.getTerminator()->getOperands();
    stored.insert(outputs.begin(), outputs.end());
    for (Operation &op : body.without_terminator())
      if (domain.isRowReduction(&op) || domain.isOuterReduction(&op))
        demand(op.getOperand(0), domain.getPass(op.getOperand(0)));
    for (Value output : outputs)
      demand(output, domain.getPass(output));
  }

  unsigned get(Value input) const { return last.lookup(input); }

private:
  void demand(Value value, unsigned pass) {
    if (isa<BlockArgument>(value)) {
      unsigned &slot = last[value];
      slot = std::max(slot, pass);
      return;
    }
    Operation *op = value.getDefiningOp();
    if (domain.isRowReduction(op) || !seen.insert({value, pass}).second)
      return; // Kept in a register.
    if (stored.contains(value) && domain.getPass(value) < pass)
      return;
    for (Value operand : op->getOperands())
      demand(operand, pass);
  }

  const KernelDomain &domain;
  llvm::SmallPtrSet<Value, 8> stored;
  llvm::DenseSet<std::pair<Value, unsigned>> seen;
  DenseMap<Value, unsigned> last;
};

} // namespace

// Whether rows of `input` are looked up: other rows of the kernel read them
// too.
static bool isTable(Value input) {
  return llvm::any_of(input.getUsers(), [&](Operation *user) {
    auto embedding = dyn_cast<EmbeddingOp>(user);
    return embedding && embedding.getTable() == input;
  });
}

SmallVector<SmallVector<unsigned>> getOverwritableInputs(Block &body) {
  auto outputs = body.getTerminator()->getOperands();
  SmallVector<SmallVector<unsigned>> result(outputs.size());
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator()) {
    if (!isFusable(&op))
      return result;
    ops.push_back(&op);
  }
  std::optional<KernelDomain> domain = KernelDomain::analyse(ops);
  if (!domain)
    return result;
  LastReads reads(body, *domain);
  size_t all = domain->getSizes().size();
  for (auto [position, output] : llvm::enumerate(outputs)) {
    if (domain->getDims(output).size() != all)
      continue; // Other rows would write the same element.
    for (BlockArgument input : body.getArguments())
      if (input.getType() == output.getType() && domain->contains(input) &&
          !isTable(input) && domain->getDims(input).size() == all &&
          reads.get(input) <= domain->getPass(output))
        result[position].push_back(input.getArgNumber());
  }
  return result;
}

} // namespace kiln
