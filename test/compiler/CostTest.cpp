// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The FLOPs that the Costed interface counts equal closed formulas of the
// config, to the last one. The formulas are written from the models' papers,
// not from the compiler.
#include "compiler/frontend/ImportModel.h"
#include "compiler/pipeline/Pipeline.h"
#include "dialects/exec/Exec.h"
#include "test/compiler/CompiledModule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/Passes.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace kiln::test {
namespace {

/// A product of an m x k with a k x n matrix: m n k multiplications and as many
/// additions.
int64_t product(int64_t m, int64_t k, int64_t n) { return 2 * m * k * n; }

struct Flops {
  int64_t forward = 0, backward = 0;
  int64_t step() const { return forward + backward; }
};

/// Each linear layer does its product once forward and twice backward, for its
/// input and its weight. Attention does two products per visible pair of
/// positions forward (scores, result) and five backward (scores again, dV, dP,
/// dQ, dK). The head makes logits forward and two gradients backward.
Flops gptFlops(const Config &config) {
  const ModelConfig &m = config.model;
  int64_t batch = config.training.globalBatch;
  int64_t tokens = batch * m.sequence;
  int64_t linear = product(tokens, m.hidden, 3 * m.hidden) +
                   product(tokens, m.hidden, m.hidden) +
                   product(tokens, m.hidden, m.feedForward) +
                   product(tokens, m.feedForward, m.hidden);
  // Position s sees s + 1 positions; a pair costs one product of vectors as
  // wide as a head, and the heads together are as wide as the model.
  int64_t pairs = batch * m.sequence * (m.sequence + 1) / 2;
  int64_t attention = product(1, m.hidden, 1) * pairs;
  int64_t head = product(tokens, m.hidden, m.vocabulary);
  Flops flops;
  flops.forward = m.layers * (linear + 2 * attention) + head;
  flops.backward = m.layers * (2 * linear + 5 * attention) + 2 * head;
  return flops;
}

/// The first layer has no gradient of its input: that is the data.
Flops mlpFlops(const Config &config) {
  std::vector<int64_t> widths = {config.model.inputs};
  widths.insert(widths.end(), config.model.hiddenSizes.begin(),
                config.model.hiddenSizes.end());
  widths.push_back(config.model.classes);
  Flops flops;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    int64_t layer =
        product(config.training.globalBatch, widths[i], widths[i + 1]);
    flops.forward += layer;
    flops.backward += i == 0 ? layer : 2 * layer;
  }
  return flops;
}

Flops wantedFlops(const Config &config) {
  return config.model.kind == ModelKind::Gpt ? gptFlops(config)
                                             : mlpFlops(config);
}

/// FLOPs that the ops of scheduled programs state, times the runs of their
/// phase.
int64_t walkFlops(ModuleOp module) {
  int64_t total = 0;
  module.walk([&](PhaseOp phase) {
    int64_t once = 0;
    phase.walk([&](Costed op) { once += op.getFlops(); });
    total += once * int64_t(phase.getRepeat());
  });
  return total;
}

/// The config's model with its batch, as a training step or forward alone.
int64_t countInIr(const Config &config, bool isTraining) {
  CompileContext context;
  OwningOpRef<ModuleOp> module = importModel(config, context.mlir);
  PassManager manager(&context.mlir);
  if (isTraining) {
    manager.addPass(createDifferentiate());
    manager.addPass(createBuildStep());
  } else {
    for (auto function : module->getOps<func::FuncOp>())
      function->removeAttr(kLossAttribute);
  }
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  ScheduleStepOptions schedule;
  schedule.batch = config.training.globalBatch;
  schedule.microBatch = resolvePlan(config).microBatch;
  manager.addPass(createScheduleStep(schedule));
  manager.addPass(createCanonicalizerPass());
  EXPECT_TRUE(succeeded(manager.run(*module)));
  return walkFlops(*module);
}

uint64_t countInArtifact(const Config &config) {
  CompileContext context;
  OwningOpRef<ModuleOp> module = importModel(config, context.mlir);
  auto compiled = CompiledModule::compile(*module, config);
  return compiled ? compiled->index().flops_per_step() : 0;
}

const char kGpt[] = R"(
model: {kind: gpt, layers: 2, hidden: 32, heads: 4, feed_forward: 48, sequence: 16, vocabulary: 96}
training: {global_batch: 8, steps: 1}
data: {kind: none}
)";
const char kMlp[] = R"(
model: {kind: mlp, inputs: 37, hidden: [29, 13], classes: 7}
training: {global_batch: 11, steps: 1}
data: {kind: none}
)";

struct Variant {
  const char *name;
  const char *text;
  std::vector<std::string> overrides;
};

class Cost : public testing::TestWithParam<Variant> {};

TEST_P(Cost, EqualsTheClosedFormula) {
  const Variant &variant = GetParam();
  Config config = configFromText(variant.text, variant.overrides);
  Flops wanted = wantedFlops(config);
  EXPECT_EQ(countInIr(config, /*isTraining=*/false), wanted.forward);
  EXPECT_EQ(countInIr(config, /*isTraining=*/true), wanted.step());
  EXPECT_EQ(int64_t(countInArtifact(config)), wanted.step());
}

INSTANTIATE_TEST_SUITE_P(
    Models, Cost,
    testing::Values(
        Variant{"gpt", kGpt, {}},
        Variant{"gpt_untied", kGpt, {"model.tied_head=false"}},
        Variant{"gpt_without_biases",
                kGpt,
                {"model.biases=false", "model.positions=none"}},
        Variant{"gpt_odd",
                kGpt,
                {"model.layers=3", "model.hidden=21", "model.heads=3",
                 "model.feed_forward=35", "model.sequence=13",
                 "model.vocabulary=53", "training.global_batch=5"}},
        Variant{
            "gpt_micro_batches_with_a_rest", kGpt, {"training.micro_batch=3"}},
        Variant{"gpt_f64", kGpt, {"training.precision=f64"}},
        Variant{"mlp", kMlp, {}},
        Variant{"mlp_one_layer", kMlp, {"model.hidden=[17]"}},
        Variant{
            "mlp_micro_batches_with_a_rest", kMlp, {"training.micro_batch=4"}}),
    [](const testing::TestParamInfo<Variant> &info) {
      return info.param.name;
    });

// The work of a step does not depend on how it is spread over devices, if all
// sizes divide evenly; devices with different shares count their own work.
TEST(Cost, OfAStepOnAllDevices) {
  int64_t wanted = wantedFlops(configFromText(kGpt)).step();
  for (std::vector<std::string> plan :
       {std::vector<std::string>{"devices.count=2"},
        {"devices.count=4", "devices.zero=3"},
        {"devices.count=2", "devices.mesh={data: 1, tensor: 2}"},
        {"devices.count=4", "devices.mesh={data: 2, tensor: 2}"},
        {"devices.count=2", "devices.speeds=[3, 1]"}})
    EXPECT_EQ(int64_t(countInArtifact(configFromText(kGpt, plan))), wanted)
        << plan.back();
}

// Products with padding count, as in published figures; pooling multiplies
// nothing.
TEST(Cost, OfConvolutionsAndTheirGradients) {
  CompileContext context;
  auto module = parseText(context.mlir, R"(
func.func @f(%x: tensor<5x9x8x3xf32>, %w: tensor<7x3x3x2xf32>, %g: tensor<5x5x9x7xf32>) {
  %0 = kiln.convolution %x, %w strides [2, 1] padding [1, 1] : (tensor<5x9x8x3xf32>, tensor<7x3x3x2xf32>) -> tensor<5x5x9x7xf32>
  %1 = kiln.convolution_grad_input %g, %w strides [2, 1] padding [1, 1] : (tensor<5x5x9x7xf32>, tensor<7x3x3x2xf32>) -> tensor<5x9x8x3xf32>
  %2 = kiln.convolution_grad_weight %x, %g strides [2, 1] padding [1, 1] : (tensor<5x9x8x3xf32>, tensor<5x5x9x7xf32>) -> tensor<7x3x3x2xf32>
  %3 = kiln.max_pool %g window [3, 2] strides [2, 2] padding [1, 1] : (tensor<5x5x9x7xf32>) -> tensor<5x3x5x7xf32>
  return
}
)");
  ASSERT_TRUE(module);
  std::vector<int64_t> flops, pointwise;
  module->walk([&](Costed op) {
    flops.push_back(op.getFlops());
    pointwise.push_back(op.getWork().pointwise);
  });
  int64_t wanted = 2 * 5 * (5 * 9) * 7 * 3 * (3 * 2);
  EXPECT_EQ(flops, (std::vector<int64_t>{wanted, wanted, wanted, 0}));
  EXPECT_EQ(pointwise,
            (std::vector<int64_t>{0, 0, 0, 5 * (3 * 5) * 7 * (3 * 2)}));
}

// A symbolic batch is a negative size, which must not enter a product.
TEST(Cost, OfASymbolicBatchIsNotKnown) {
  CompileContext context;
  auto module = parseText(context.mlir, R"(
func.func @f(%x: tensor<?x8xf32>, %w: tensor<8x4xf32>) {
  %0 = kiln.contract "bk,kn->bn" %x, %w : tensor<?x8xf32>, tensor<8x4xf32> -> tensor<?x4xf32>
  return
}
)");
  ASSERT_TRUE(module);
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // The context has threads.
  EXPECT_DEATH(module->walk([](Costed op) { (void)op.getFlops(); }),
               "the work of an op is asked for while its batch has no size");
}

// The formulas on the shapes that people run; too large to compile here.
TEST(Cost, OfTheConfigsByWalkingTheIr) {
  for (const char *name : {"minigpt", "gpt2", "gpt2-bench", "tiny", "mlp"}) {
    Diagnostics diagnostics;
    std::string path =
        std::string(KILN_SOURCE_FOLDER) + "/models/configs/" + name + ".yaml";
    auto config = loadConfig(path, {}, diagnostics);
    ASSERT_TRUE(config) << diagnostics.text();
    EXPECT_EQ(countInIr(*config, true), wantedFlops(*config).step()) << name;
  }
}

} // namespace
} // namespace kiln::test
