// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads, reductions and stores of a kernel in each pass over a row.
#include "compiler/fuse/RowAccess.h"
#include "compiler/lower/InPlace.h"
#include "test/compiler/CompiledModule.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace kiln::test {
namespace {

/// The kernel of a program that has one.
class Kernel {
public:
  Kernel(const std::string &types, const std::string &body) {
    module = parseText(context.mlir, R"(
kiln.program @p batch 4 {
  kiln.phase "call" repeat 1 first 0 samples 4 inputs ["x", "y"] {
  ^bb0(%x: tensor<4x8xf32>, %y: tensor<8xf32>):
    %r:2 = kiln.kernel(%x, %y) : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, )" +
                                         types + R"() {
    ^bb0(%a: tensor<4x8xf32>, %b: tensor<8xf32>):
)" + body + R"(
    }
    kiln.yield
  }
})");
    module->walk([&](KernelOp found) { block = &found.getBody().front(); });
    SmallVector<Operation *> ops;
    for (Operation &op : block->without_terminator())
      ops.push_back(&op);
    domain = KernelDomain::analyse(ops);
    access.emplace(*block, *domain);
  }

  CompileContext context;
  OwningOpRef<ModuleOp> module;
  Block *block = nullptr;
  std::optional<KernelDomain> domain;
  std::optional<RowAccess> access;
};

using Positions = std::vector<unsigned>;
Positions copy(ArrayRef<unsigned> list) { return {list.begin(), list.end()}; }

// The first output is stored in the first pass, so the second one reads it back
// instead of its operands: a later output may overlap those.
TEST(RowAccess, ReadsBackWhatItHasStored) {
  Kernel kernel("tensor<4x8xf32>", R"(
      %e = kiln.exp %a : tensor<4x8xf32>
      %s = kiln.sum "bn->b" %e : tensor<4x8xf32> -> tensor<4xf32>
      %w = kiln.broadcast "b->bn" %s : tensor<4xf32> -> tensor<4x8xf32>
      %q = kiln.div %e, %w : tensor<4x8xf32>
      kiln.yield %e, %q : tensor<4x8xf32>, tensor<4x8xf32>)");
  const RowAccess &access = *kernel.access;
  ASSERT_EQ(access.getPasses().size(), 2u);
  EXPECT_EQ(access.getPasses()[0].reductions.size(), 1u);
  EXPECT_EQ(copy(access.getPasses()[0].stores), Positions{0});
  EXPECT_EQ(copy(access.getPasses()[1].stores), Positions{1});
  Value stored = kernel.block->front().getResult(0);
  EXPECT_FALSE(access.isReadBack(stored, 0));
  EXPECT_TRUE(access.isReadBack(stored, 1));
  EXPECT_EQ(access.getLastRead(kernel.block->getArgument(0)), 0u);
  auto overwritable = getOverwritableInputs(*kernel.block);
  EXPECT_EQ(copy(overwritable[0]), Positions{0});
  EXPECT_EQ(copy(overwritable[1]), Positions{0});
}

// A value that is not stored is computed again, so its input is read until
// then.
TEST(RowAccess, ReadsInputsAgainForWhatItHasNot) {
  Kernel kernel("tensor<4xf32>", R"(
      %e = kiln.exp %a : tensor<4x8xf32>
      %s = kiln.sum "bn->b" %e : tensor<4x8xf32> -> tensor<4xf32>
      %w = kiln.broadcast "b->bn" %s : tensor<4xf32> -> tensor<4x8xf32>
      %q = kiln.div %e, %w : tensor<4x8xf32>
      kiln.yield %q, %s : tensor<4x8xf32>, tensor<4xf32>)");
  EXPECT_EQ(kernel.access->getLastRead(kernel.block->getArgument(0)), 1u);
  EXPECT_EQ(copy(kernel.access->getRowStores()), Positions{1});
  EXPECT_EQ(copy(getOverwritableInputs(*kernel.block)[0]), Positions{0});
}

// The result of tanh has no batch: all four rows compute it, the first stores
// it. No row may read back what another stores.
TEST(RowAccess, OneRowStoresWhatSeveralComputeAlike) {
  Kernel kernel("tensor<8xf32>", R"(
      %t = kiln.tanh %b : tensor<8xf32>
      %w = kiln.broadcast "n->bn" %t : tensor<8xf32> -> tensor<4x8xf32>
      %m = kiln.mul %a, %w : tensor<4x8xf32>
      %s = kiln.sum "bn->b" %m : tensor<4x8xf32> -> tensor<4xf32>
      %v = kiln.broadcast "b->bn" %s : tensor<4xf32> -> tensor<4x8xf32>
      %q = kiln.mul %v, %w : tensor<4x8xf32>
      kiln.yield %q, %t : tensor<4x8xf32>, tensor<8xf32>)");
  const RowAccess &access = *kernel.access;
  EXPECT_EQ(copy(access.getSharedStores()), Positions{1});
  EXPECT_TRUE(access.getPasses()[0].stores.empty());
  EXPECT_EQ(copy(access.getPasses()[1].stores), Positions{0});
  EXPECT_FALSE(access.isReadBack(kernel.block->front().getResult(0), 1));
}

} // namespace
} // namespace kiln::test
