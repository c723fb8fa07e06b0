// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/plan/Plan.h"

#include "test/compiler/config/ConfigTexts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Config configOf(const std::string &text,
                const std::vector<std::string> &overrides = {}) {
  Diagnostics diagnostics;
  std::optional<Config> config =
      parseConfig(text, "a.yaml", overrides, diagnostics);
  EXPECT_TRUE(config) << diagnostics.text();
  return config.value_or(Config());
}

TEST(Plan, AutomaticIsDataParallel) {
  Config config = configOf(gptText, {"devices.count=4"});
  Plan plan = resolvePlan(config), wanted;
  wanted.mesh = {4, 1};
  wanted.microBatch = 4;
  EXPECT_EQ(plan, wanted);
  // A micro-batch larger than a replica's share is the share.
  EXPECT_THAT(plan.shares(config), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(plan.microBatchSize(2), 2);
  EXPECT_EQ(plan.accumulation(2), 1);
  EXPECT_EQ(plan.accumulation(9), 3);
  EXPECT_EQ(resolvePlan(configOf(gptText, {"training.micro_batch=auto"})),
            resolvePlan(configOf(gptText, {"training.micro_batch=none"})));
}

// A replica waits for its slowest device.
TEST(Plan, SpeedsOfDevicesAreThoseOfTheirReplicas) {
  auto speedsOf = [](const char *speeds) {
    return resolvePlan(configOf(gptText, {"devices={count: 6, mesh: {data: 3, "
                                          "tensor: 2}, speeds: " +
                                          std::string(speeds) + "}"}))
        .speeds;
  };
  EXPECT_THAT(speedsOf("[4, 2, 1, 9, 1, 1]"), ElementsAre(2, 1, 1));
  EXPECT_THAT(speedsOf("[4, 2, 1]"), ElementsAre(4, 2, 1));
  // Plans that share alike are equal.
  EXPECT_THAT(speedsOf("[2, 2, 2]"), IsEmpty());
  EXPECT_THAT(speedsOf("[2, 3, 3, 2, 2, 9]"), IsEmpty());
  EXPECT_THAT(speedsOf("auto"), IsEmpty());
}

TEST(Plan, OverridesMakeAConfigHaveIt) {
  Plan plan;
  plan.mesh = {2, 4};
  plan.zero = 3;
  plan.offload = Offload::Optimizer;
  plan.recompute = Recompute::Attention;
  plan.microBatch = 2;
  plan.isSequenceParallel = false;
  plan.speeds = {1, 0.1};
  // Over requests for another plan, and with the other keys of `devices` kept.
  std::string text = replaced(gptText, "mesh: auto",
                              "speeds: [1]\n  mesh: {data: 1, tensor: 1}");
  for (const Plan &each : {plan, Plan()}) {
    Config config = configOf(text, each.overrides());
    EXPECT_EQ(resolvePlan(config), each) << resolvePlan(config).name();
    EXPECT_EQ(config.devices.threads, 2);
    EXPECT_EQ(config.devices.memory, int64_t(2) << 30);
  }
  EXPECT_EQ(plan.name(), "data=2 tensor=4 zero=3 offload=optimizer "
                         "recompute=attention micro=2 sequence_parallel=false "
                         "speeds=[1, 0.1]");
  EXPECT_EQ(Plan().name(),
            "data=1 tensor=1 zero=0 offload=none recompute=none micro=none");
}

TEST(Plan, FaultsNameTheKeyToChange) {
  Config config = configOf(smallResnetText); // 64 samples, groups of 32
  auto faultsOf = [&](MeshShape mesh, int64_t microBatch) {
    Plan plan;
    plan.mesh = mesh;
    plan.microBatch = microBatch;
    std::vector<std::string> texts;
    for (const PlanFault &fault : findFaults(plan, config))
      texts.push_back(std::string(fault.key) + ": " + fault.reason);
    return texts;
  };
  EXPECT_THAT(faultsOf({2, 3}, 32), IsEmpty());
  EXPECT_THAT(faultsOf({1, 1}, 40),
              ElementsAre("training.micro_batch: 40 is not a multiple of "
                          "model.statistics_group = 32, whose samples batch "
                          "norm takes together; try 32 or 64"));
  EXPECT_THAT(faultsOf({1, 1}, 96),
              ElementsAre("training.micro_batch: 96 is more than "
                          "training.global_batch = 64"));
  EXPECT_THAT(faultsOf({4, 1}, 8), SizeIs(2));
}

TEST(Plan, RequestsThatOnlyTheSearchCanServeAreNotGuessed) {
  Config config = configOf(gptText);
  for (auto kind :
       {MicroBatchRequest::Kind::Explore, MicroBatchRequest::Kind::Range}) {
    config.training.microBatch = {kind, 1, 4};
    ASSERT_THAT(resolveRequests(config).faults, SizeIs(1));
    EXPECT_EQ(resolveRequests(config).faults.front().key,
              "training.micro_batch");
  }
  EXPECT_NE(config.print().find("micro_batch: {min: 1, max: 4}\n"),
            std::string::npos);
}

// One mistake, one message: faults that follow from it are not reported.
TEST(Plan, FaultsThatFollowFromOthersAreNotReported) {
  EXPECT_THAT(errorsOf(gptText, {"devices.count=20", "devices.mesh={data: 3}",
                                 "devices.speeds=[1, 2]"}),
              SizeIs(1));
  EXPECT_THAT(errorsOf(gptText, {"devices.count=x", "devices.mesh={data: 3}"}),
              SizeIs(1));
  EXPECT_THAT(errorsOf(gptText, {"training.global_batch=0"}), SizeIs(1));
  EXPECT_THAT(errorsOf(gptText, {"devices.count=20", "devices.mesh={data: 3}",
                                 "training.micro_batch=9"}),
              SizeIs(2));
}

TEST(Plan, ManyDevices) {
  Config config =
      configOf(gptText, {"devices.count=65536", "training.global_batch=131072",
                         "devices.mesh={data: 8192, tensor: 8}"});
  Plan plan = resolvePlan(config);
  EXPECT_EQ(plan.mesh.devices(), maximumDevices);
  EXPECT_EQ(plan.shares(config).size(), 8192u);
}

} // namespace
} // namespace kiln::test
