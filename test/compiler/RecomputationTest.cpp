// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recomputation keeps less and computes more; losses stay the same to the bit.
#include "test/compiler/TrainedModel.h"

#include <gtest/gtest.h>

namespace kiln::test {
namespace {

struct Trained {
  std::vector<double> losses;
  int64_t deviceBytes, flops;
};

Trained trainPlan(const std::string &text,
                  const std::vector<std::string> &plan) {
  TemporaryFolder folder;
  std::string artifact = folder.file("model.kiln");
  compile(text, plan, artifact);
  Expected<Session> session = Session::load(artifact);
  EXPECT_TRUE(session.ok());
  return {run(artifact), int64_t(session->artifact().image().arena_bytes()),
          int64_t(session->index().flops_per_step())};
}

/// Sizes that do not divide evenly; one has a smaller last micro-batch.
struct Family {
  const char *name;
  const char *text;
  bool hasAttention;
};

class Families : public testing::TestWithParam<Family> {};

TEST_P(Families, KeepLessAndHaveTheSameLosses) {
  Trained none = trainPlan(GetParam().text, {"devices.recompute=none"});
  expectFalling(none.losses);
  auto expectLess = [&](const char *what) {
    Trained less =
        trainPlan(GetParam().text, {std::string("devices.recompute=") + what});
    EXPECT_EQ(none.losses, less.losses) << what;
    EXPECT_GT(less.flops, none.flops) << what;
    EXPECT_LT(less.deviceBytes, none.deviceBytes) << what;
  };
  expectLess("full");
  if (GetParam().hasAttention)
    expectLess("attention");
}

INSTANTIATE_TEST_SUITE_P(Recomputation, Families,
                         testing::Values(Family{"gpt", R"(
model: {kind: gpt, layers: 2, hidden: 24, heads: 3, sequence: 19, vocabulary: 37, dropout: 0.1}
training: {global_batch: 7, micro_batch: 4, steps: 6, clip_norm: 1}
data: {kind: none}
devices: {threads: 2}
)",
                                                true},
                                         Family{"bert", R"(
model: {kind: bert, layers: 2, hidden: 24, heads: 3, sequence: 19, vocabulary: 37, dropout: 0.1, attention_dropout: 0.1}
training: {global_batch: 5, steps: 6}
data: {kind: none}
devices: {threads: 2}
)",
                                                true},
                                         Family{"classifier", R"(
model: {kind: classifier, layers: 2, hidden: 24, heads: 3, sequence: 19, vocabulary: 37, attention_dropout: 0.2}
training: {global_batch: 5, steps: 6, optimizer: {kind: sgd, learning_rate: 0.1, momentum: 0.9}}
data: {kind: none}
devices: {threads: 2}
)",
                                                true},
                                         Family{"resnet", R"(
model: {kind: resnet, depth: 18, image: 20, statistics_group: 3}
training: {global_batch: 6, steps: 4}
data: {kind: none}
devices: {threads: 2}
)",
                                                false}),
                         [](const testing::TestParamInfo<Family> &info) {
                           return info.param.name;
                         });

// The clones of a layer cost one more forward pass of it, save for the last
// product, which no gradient reads.
TEST(Recomputation, CostsOneMoreForwardPass) {
  const int64_t layers = 8, hidden = 64, sequence = 64, batch = 8;
  std::string text =
      "model: {kind: gpt, layers: 8, hidden: 64, heads: 4, sequence: 64, "
      "vocabulary: 64}\n"
      "training: {global_batch: 8, steps: 2}\ndata: {kind: none}\n"
      "devices: {threads: 2}\n";
  Trained none = trainPlan(text, {"devices.recompute=none"});
  Trained attention = trainPlan(text, {"devices.recompute=attention"});
  Trained full = trainPlan(text, {"devices.recompute=full"});
  // Position i of a causal row sees i + 1 positions, in two products.
  int64_t attended = 2 * 2 * batch * hidden * sequence * (sequence + 1) / 2;
  int64_t linear = 2 * batch * sequence * (4 + 4) * hidden * hidden;
  EXPECT_EQ(attention.flops - none.flops, layers * attended);
  EXPECT_EQ(full.flops - none.flops, layers * (linear + attended));
  EXPECT_LT(attention.deviceBytes, none.deviceBytes);
  // Only the input of a layer is kept.
  EXPECT_LT(full.deviceBytes, attention.deviceBytes / 2);
  EXPECT_EQ(none.losses, full.losses);
}

TEST(Recomputation, KeepsBf16) {
  std::string text =
      "model: {kind: gpt, layers: 2, hidden: 32, heads: 2, sequence: 32, "
      "vocabulary: 64}\n"
      "training: {global_batch: 4, steps: 4, precision: bf16}\n"
      "data: {kind: none}\n";
  Trained none = trainPlan(text, {"devices.recompute=none"});
  Trained full = trainPlan(text, {"devices.recompute=full"});
  EXPECT_EQ(none.losses, full.losses);
  EXPECT_LT(full.deviceBytes, none.deviceBytes);
}

} // namespace
} // namespace kiln::test
