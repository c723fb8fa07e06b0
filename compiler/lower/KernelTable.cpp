// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/KernelTable.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;

namespace kiln {

// What people call it: the op, or how many are fused and the most telling of
// them.
static std::string describe(Block &body) {
  std::string text;
  unsigned count = 0;
  StringRef telling;
  for (Operation &op : body.without_terminator()) {
    StringRef name = op.getName().stripDialect();
    ++count;
    if (telling.empty() ||
        isa<SumOp, MaxOp, EmbeddingOp, ContractOp, ExpOp, TanhOp, SqrtOp>(op))
      telling = name;
  }
  return count == 1 ? telling.str()
                    : "fused_" + telling.str() + "_" + std::to_string(count);
}

// Identity is the text: facts about operands, and of the body ops, shapes and
// attributes, with values numbered from zero.
exec::KernelOp KernelTable::get(KernelOp kernel, const OperandFacts &facts) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto copy = exec::KernelOp::create(
      builder, UnknownLoc::get(module.getContext()), "kernel", 0,
      facts.alignments, facts.overlaps, nullptr, nullptr);
  IRMapping mapping;
  kernel.getBody().cloneInto(&copy.getBody(), mapping);
  copy.walk(
      [&](Operation *op) { op->setLoc(UnknownLoc::get(module.getContext())); });
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy->print(stream, OpPrintingFlags().useLocalScope());
  auto [slot, isNew] = known.try_emplace(text);
  if (!isNew) {
    copy.erase();
    return slot->second;
  }
  auto digest = llvm::SHA256::hash(
      ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  copy.setSymName(describe(copy.getBody().front()) + "_" +
                  llvm::toHex(ArrayRef(digest).take_front(6), true));
  return slot->second = copy;
}

} // namespace kiln
