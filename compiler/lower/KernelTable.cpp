// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/KernelTable.h"
#include "compiler/lower/InPlace.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;

namespace kiln {

// A readable name: the op, or the number of fused ops and the most telling of
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

static int64_t sumBytes(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types)
    bytes += getByteSize(type);
  return bytes;
}

// Bytes that a kernel must move at least: of a table only the rows that are
// looked up.
static int64_t countBytes(KernelOp kernel) {
  int64_t bytes =
      sumBytes(kernel.getOperandTypes()) + sumBytes(kernel.getResultTypes());
  kernel.walk([&](EmbeddingOp op) {
    bytes += getByteSize(op.getType()) - getByteSize(op.getTable().getType());
  });
  return bytes;
}

// Of ops, attributes and types in order. Which value an operand is does not
// count: bodies that differ in that alone are told apart by comparing them.
static unsigned hashBody(Region &region) {
  llvm::hash_code hash(0);
  for (Operation &op : region.front())
    hash =
        llvm::hash_combine(hash, OperationEquivalence::computeHash(
                                     &op, OperationEquivalence::ignoreHashValue,
                                     OperationEquivalence::ignoreHashValue,
                                     OperationEquivalence::IgnoreLocations));
  return unsigned(size_t(hash)) >> 2; // Not a key that the map reserves.
}

KernelTable::Body &KernelTable::find(KernelOp kernel) {
  SmallVector<Body *, 1> &alike = byHash[hashBody(kernel.getBody())];
  for (Body *body : alike)
    if (OperationEquivalence::isRegionEquivalentTo(
            &kernel.getBody(), &body->region,
            OperationEquivalence::IgnoreLocations))
      return *body;
  Body &body = bodies.emplace_back();
  alike.push_back(&body);
  IRMapping mapping;
  kernel.getBody().cloneInto(&body.region, mapping);
  body.overwritable = getOverwritableInputs(kernel.getBody().front());
  kernel.walk([&](Costed op) { body.flops += op.getFlops(); });
  body.bytes = countBytes(kernel);
  return body;
}

// The name is the hash of the text: facts about operands, and of the body ops,
// shapes and attributes, with values numbered from zero.
exec::KernelOp KernelTable::get(Body &body, const OperandFacts &facts) {
  for (auto &[known, kernel] : body.kernels)
    if (known == facts)
      return kernel;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto kernel = exec::KernelOp::create(
      builder, UnknownLoc::get(module.getContext()), "kernel", facts.isOnHost,
      /*scratch_bytes=*/0, facts.alignments, facts.overlaps, nullptr, nullptr,
      nullptr, nullptr, nullptr);
  IRMapping mapping;
  body.region.cloneInto(&kernel.getBody(), mapping);
  kernel.walk(
      [&](Operation *op) { op->setLoc(UnknownLoc::get(module.getContext())); });
  std::string text;
  llvm::raw_string_ostream stream(text);
  kernel->print(stream, OpPrintingFlags().useLocalScope());
  auto digest = llvm::SHA256::hash(
      ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  kernel.setSymName(describe(kernel.getBody().front()) + "_" +
                    llvm::toHex(ArrayRef(digest).take_front(6), true));
  body.kernels.push_back({facts, kernel});
  return kernel;
}

} // namespace kiln
