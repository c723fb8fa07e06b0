// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A reduction of one long row is shared by workers, as that of a flat shard
// under ZeRO-3; the number of workers changes no bit of it.
#include "test/compiler/CompiledModule.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace mlir;

namespace kiln::test {
namespace {

constexpr int64_t kElements = 100003; // No whole number of vectors or chunks.

const char *const kNormalised = R"(
func.func @normalised(%x: tensor<100003xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<100003xf32>) {
  %squares = kiln.mul %x, %x : tensor<100003xf32>
  %sum = kiln.sum "i->" %squares : tensor<100003xf32> -> tensor<f32>
  %sums = kiln.broadcast "->i" %sum : tensor<f32> -> tensor<100003xf32>
  %ratios = kiln.div %squares, %sums : tensor<100003xf32>
  %largest = kiln.max "i->" %ratios : tensor<100003xf32> -> tensor<f32>
  %all = kiln.broadcast "->i" %largest : tensor<f32> -> tensor<100003xf32>
  %y = kiln.sub %all, %ratios : tensor<100003xf32>
  return %sum, %largest, %y : tensor<f32>, tensor<f32>, tensor<100003xf32>
})";

std::vector<double> makeInput() {
  std::vector<double> values(kElements);
  for (int64_t i = 0; i < kElements; ++i)
    values[i] = static_cast<float>(std::sin(double(i)) * (1 + i % 7));
  return values;
}

std::vector<std::vector<double>> run(unsigned threads) {
  CompileContext context;
  auto module = parseText(context.mlir, kNormalised);
  auto compiled =
      CompiledModule::compile(*module, functionConfig(), false, threads);
  if (!compiled)
    return {};
  // One kernel, and a stage for each pass: 100003 columns are seven chunks.
  EXPECT_EQ(compiled->index().kernels()->size(), 1u);
  for (const artifact::KernelStage *stage :
       *compiled->index().kernels()->Get(0)->stages())
    EXPECT_EQ(stage->items(), 7u) << stage->symbol()->str();
  EXPECT_EQ(compiled->index().kernels()->Get(0)->stages()->size(), 3u);
  compiled->setInput("normalised", "argument0", makeInput());
  compiled->run("normalised");
  return compiled->getResults("normalised");
}

TEST(LongRow, WorkersShareItAndChangeNoBit) {
  auto alone = run(1), shared = run(2);
  ASSERT_EQ(alone.size(), 3u);
  EXPECT_EQ(alone, shared);
  double sum = 0, largest = 0;
  std::vector<double> input = makeInput();
  for (double x : input)
    sum += x * x;
  for (double x : input)
    largest = std::max(largest, x * x / sum);
  EXPECT_NEAR(alone[0][0] / sum, 1, 1e-6);
  EXPECT_NEAR(alone[1][0] / largest, 1, 1e-6);
  for (int64_t i = 0; i < kElements; ++i)
    ASSERT_NEAR(alone[2][i], largest - input[i] * input[i] / sum,
                1e-6 * largest)
        << i;
}

} // namespace
} // namespace kiln::test
