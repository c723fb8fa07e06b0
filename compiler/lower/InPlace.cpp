// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/InPlace.h"
#include "compiler/fuse/RowAccess.h"

using namespace mlir;

namespace kiln {

// Whether rows of `input` are looked up: other rows of the kernel read them
// too.
static bool isTable(Value input) {
  return llvm::any_of(input.getUsers(), [&](Operation *user) {
    auto indexed = dyn_cast<RowIndexed>(user);
    return indexed && !llvm::is_contained(indexed.getIndexedOperands(), input);
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
  RowAccess access(body, *domain);
  size_t all = domain->getSizes().size();
  for (auto [position, output] : llvm::enumerate(outputs)) {
    if (domain->getDims(output).size() != all)
      continue; // Other rows would write the same element.
    for (BlockArgument input : body.getArguments())
      if (input.getType() == output.getType() && domain->contains(input) &&
          !isTable(input) && domain->getDims(input).size() == all &&
          access.getLastRead(input) <= domain->getPass(output))
        result[position].push_back(input.getArgNumber());
  }
  return result;
}

} // namespace kiln
