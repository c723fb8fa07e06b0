// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/fuse/RowAccess.h"

using namespace mlir;

namespace kiln {

RowAccess::RowAccess(Block &body, const KernelDomain &domain)
    : domain(domain), passes(domain.getPassCount()) {
  auto yielded = body.getTerminator()->getOperands();
  for (auto [position, output] : llvm::enumerate(yielded))
    outputs.try_emplace(output, position);
  for (Operation &op : body.without_terminator())
    addOp(&op);
  for (auto [position, output] : llvm::enumerate(yielded))
    addOutput(output, position);
}

void RowAccess::addOp(Operation *op) {
  Value result = op->getResult(0);
  if (domain.isRowReduction(op)) {
    unsigned pass = domain.getPass(op->getOperand(0));
    passes[pass].reductions.push_back(op);
    findReads(op->getOperand(0), pass);
    return;
  }
  Pass &pass = passes[domain.getPass(result)];
  if (!domain.isOuterReduction(op)) {
    if (!domain.isPoint(result))
      pass.rowValues.push_back(result);
    return;
  }
  outer.push_back(op);
  if (domain.isPoint(result))
    pass.columnSums.push_back(op);
  else if (domain.isPoint(op->getOperand(0)))
    pass.reductions.push_back(op);
  else
    rowSums.push_back(op);
  findReads(op->getOperand(0), domain.getPass(op->getOperand(0)));
}

void RowAccess::addOutput(Value output, unsigned position) {
  Operation *op = output.getDefiningOp();
  if (op && domain.isOuterReduction(op))
    return; // Stored when all rows are done.
  unsigned pass = domain.getPass(output);
  if (!domain.differsByRow(output)) {
    sharedStores.push_back(position);
    pass = domain.getPassCount() - 1;
  } else if (domain.isPoint(output)) {
    passes[pass].stores.push_back(position);
  } else {
    rowStores.push_back(position);
  }
  findReads(output, pass);
}

// The inputs that are loaded for `value` in `pass`.
void RowAccess::findReads(Value value, unsigned pass) {
  if (isa<BlockArgument>(value)) {
    unsigned &last = lastReads[value];
    last = std::max(last, pass);
    return;
  }
  Operation *op = value.getDefiningOp();
  if (domain.isRowReduction(op) || !seen.insert({value, pass}).second)
    return; // Kept in a register.
  if (isReadBack(value, pass))
    return;
  for (Value operand : op->getOperands())
    findReads(operand, pass);
}

} // namespace kiln
