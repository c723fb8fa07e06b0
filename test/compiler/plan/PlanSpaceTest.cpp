// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/plan/PlanSpace.h"

#include "test/compiler/config/ConfigTexts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace kiln::test {
namespace {

using testing::ElementsAre;

Config configOf(const std::string &text,
                const std::vector<std::string> &overrides = {}) {
  Diagnostics diagnostics;
  return parseConfig(text, "a.yaml", overrides, diagnostics).value();
}

std::set<std::string> namesOf(const std::vector<Plan> &plans) {
  std::set<std::string> names;
  for (const Plan &plan : plans)
    EXPECT_TRUE(names.insert(plan.name()).second) << plan.name() << " twice";
  return names;
}

TEST(PlanSpace, HasEveryMeshOnce) {
  PlanSpace space;
  space.deviceCounts = {1, 6};
  space.stages = {0, 3};
  space.offloads = {Offload::None};
  space.recomputes = {Recompute::None};
  std::vector<std::string> names;
  for (const Plan &plan : space.list(configOf(gptText)))
    names.push_back(plan.name().substr(0, plan.name().find(" offload")));
  EXPECT_THAT(names,
              ElementsAre("data=1 tensor=1 zero=0", "data=6 tensor=1 zero=0",
                          "data=6 tensor=1 zero=3", "data=3 tensor=2 zero=0",
                          "data=3 tensor=2 zero=3", "data=2 tensor=3 zero=0",
                          "data=2 tensor=3 zero=3", "data=1 tensor=6 zero=0"));
}

// Each plan gives a different program.
TEST(PlanSpace, LeavesOutWhatMakesNoDifference) {
  PlanSpace space;
  space.deviceCounts = {4};
  space.microBatches = {0, 1, 2, 8};
  space.sequenceParallel = {true, false};
  // A mesh of 4 x 1 has shares of 2, so that only 1 accumulates; a perceptron
  // has no attention to recompute.
  auto count = [&](const std::string &text, MeshShape mesh) {
    std::vector<Plan> plans = space.list(configOf(text));
    namesOf(plans);
    return std::count_if(plans.begin(), plans.end(),
                         [&](const Plan &plan) { return plan.mesh == mesh; });
  };
  EXPECT_EQ(count(gptText, {4, 1}), 4 * 2 * 3 * 2);
  EXPECT_EQ(count(gptText, {2, 2}), 4 * 2 * 3 * 3 * 2);
  EXPECT_EQ(count(gptText, {1, 4}), 1 * 2 * 3 * 3 * 2);
  EXPECT_EQ(count(replaced(smallMlpText, "global_batch: 2", "global_batch: 8"),
                  {4, 1}),
            4 * 2 * 2 * 2);
}

TEST(PlanSpace, SaysWhyPlansAreRefused) {
  PlanSpace space;
  space.deviceCounts = {4};
  std::vector<RefusedPlan> refused;
  std::vector<Plan> plans = space.list(configOf(smallResnetText), &refused);
  for (const Plan &plan : plans)
    EXPECT_LE(plan.mesh.data, 2) << plan.name();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused.front().plan.mesh, (MeshShape{4, 1}));
  EXPECT_EQ(refused.front().fault.key, "training.global_batch");
}

// A config with the plan's keys is valid and has the plan.
TEST(PlanSpace, EveryPlanIsThatOfAConfig) {
  for (const std::string &text : {gptText, smallResnetText, smallMlpText}) {
    Config config = configOf(text);
    std::vector<Plan> plans = PlanSpace::around(config).list(config);
    EXPECT_GT(plans.size(), 20u);
    for (const Plan &plan : plans)
      EXPECT_EQ(resolvePlan(configOf(text, plan.overrides())), plan)
          << plan.name();
  }
}

TEST(PlanSpace, GoesUpToTheDevicesOfTheConfig) {
  auto countsOf = [](const char *count) {
    return PlanSpace::around(configOf(gptText, {count, "devices.mesh=auto"}))
        .deviceCounts;
  };
  EXPECT_THAT(countsOf("devices.count=1"), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(countsOf("devices.count=6"), ElementsAre(1, 2, 3, 6));
}

TEST(PlanSpace, ServesManyDevices) {
  Config config =
      configOf(gptText, {"devices.count=65536", "training.global_batch=65536"});
  std::vector<Plan> plans = PlanSpace::around(config).list(config);
  EXPECT_TRUE(std::any_of(plans.begin(), plans.end(), [](const Plan &plan) {
    return plan.mesh == MeshShape{65536, 1} && plan.zero == 3;
  }));
  EXPECT_TRUE(std::any_of(plans.begin(), plans.end(), [](const Plan &plan) {
    return plan.mesh == MeshShape{256, 256};
  }));
}

TEST(ChoosePlans, ShowsMostPairsOfFeatures) {
  Config config = configOf(gptText);
  std::vector<Plan> all = PlanSpace::around(config).list(config);
  auto pairsOf = [](const std::vector<Plan> &plans) {
    std::set<std::pair<std::string, std::string>> pairs;
    for (const Plan &plan : plans)
      for (const std::string &first : plan.features())
        for (const std::string &second : plan.features())
          pairs.emplace(first, second);
    return pairs.size();
  };
  std::vector<Plan> chosen = choosePlans(all, 24);
  EXPECT_EQ(namesOf(chosen).size(), 24u);
  EXPECT_GT(pairsOf(chosen), pairsOf({all.begin(), all.begin() + 24}));
  EXPECT_GE(double(pairsOf(chosen)), 0.95 * double(pairsOf(all)));
  EXPECT_EQ(choosePlans(all, all.size() + 1), all);
}

} // namespace
} // namespace kiln::test
