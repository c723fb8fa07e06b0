// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same step on every plan: random meshes, stages and splits of models whose
// sizes nothing divides give the losses of one device, receive the bytes that
// the plan says and reserve the memory that it says.
#include "test/compiler/shard/PlanCase.h"

#include <gtest/gtest.h>
#include <random>

namespace kiln::test {
namespace {

struct Draw {
  std::string family;
  Plan plan;
};

/// What a plan has, of what can be had together.
std::vector<std::string> getFeatures(const Plan &plan) {
  std::vector<std::string> features;
  auto add = [&](bool has, std::string name) {
    if (has)
      features.push_back(std::move(name));
  };
  add(plan.data > 1, "data");
  add(plan.tensor > 1, "tensor");
  add(plan.zero > 0, "zero" + std::to_string(plan.zero));
  add(plan.offload != "none", "offload");
  add(plan.recompute != "none", "recompute-" + plan.recompute);
  add(plan.microBatch > 0, "accumulation");
  return features;
}

class Drawer {
public:
  explicit Drawer(uint64_t seed) : generator(seed) {}

  /// Of some draws the one whose pairs of features were seen least.
  Draw draw() {
    Draw best;
    double bestScore = -1;
    for (int attempt = 0; attempt < 12; ++attempt) {
      Draw candidate = drawOne();
      double score = 0;
      for (const auto &pair : getPairs(candidate.plan))
        score += 1.0 / (1 + seen[pair] * seen[pair]);
      if (score > bestScore) {
        best = candidate;
        bestScore = score;
      }
    }
    for (const auto &pair : getPairs(best.plan))
      ++seen[pair];
    return best;
  }

  using Pair = std::pair<std::string, std::string>;
  std::map<Pair, int> seen;

private:
  std::vector<Pair> getPairs(const Plan &plan) {
    std::vector<std::string> features = getFeatures(plan);
    std::vector<Pair> pairs;
    for (size_t i = 0; i < features.size(); ++i)
      for (size_t j = i + 1; j < features.size(); ++j)
        pairs.push_back({features[i], features[j]});
    return pairs;
  }

  int64_t pick(std::vector<int64_t> values) {
    return values[generator() % values.size()];
  }

  Draw drawOne() {
    Draw draw;
    // Compiling a ResNet takes as long as three of the others.
    static const char *families[] = {"gpt",  "gpt",  "gpt",        "bert",
                                     "bert", "bert", "classifier", "classifier",
                                     "mlp",  "mlp",  "resnet"};
    draw.family = families[generator() % std::size(families)];
    Plan &plan = draw.plan;
    plan.data = pick({1, 2, 3, 4, 5, 8});
    plan.tensor = pick({1, 2, 3, 4, 8});
    while (plan.data * plan.tensor > 8)
      (plan.data > plan.tensor ? plan.data : plan.tensor) /= 2;
    bool isResnet = draw.family == "resnet";
    if (isResnet) // Three groups of samples.
      plan.data = std::min<int64_t>(plan.data, 3);
    plan.zero = plan.data > 1 ? pick({0, 1, 2, 3}) : 0;
    plan.offload = pick({0, 0, 1}) ? "optimizer" : "none";
    plan.recompute =
        std::vector<std::string>{"none", "attention", "full"}[generator() % 3];
    plan.microBatch = isResnet ? pick({0, 4}) : pick({0, 1, 2, 3});
    plan.isSequenceParallel = pick({0, 1, 1});
    if (plan.data > 1 && !isResnet && pick({0, 0, 0, 1}))
      for (int64_t replica = 0; replica < plan.data; ++replica)
        plan.speeds.push_back(double(1 + replica % 2));
    return draw;
  }

  std::mt19937_64 generator;
};

constexpr int fewestCases = 40;

int getNumber(const char *name, int otherwise) {
  const char *text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

TEST(Plans, ShowEveryPairOfFeatures) {
  // Those of a line exclude each other.
  const std::vector<std::vector<std::string>> features = {
      {"data"},
      {"tensor"},
      {"zero1", "zero2", "zero3"},
      {"offload"},
      {"recompute-attention", "recompute-full"},
      {"accumulation"}};
  Drawer drawer(getNumber("KILN_PLAN_SEED", 1));
  for (int number = 0; number < fewestCases; ++number)
    drawer.draw();
  for (size_t i = 0; i < features.size(); ++i)
    for (size_t j = i + 1; j < features.size(); ++j)
      for (const std::string &first : features[i])
        for (const std::string &second : features[j])
          EXPECT_GE((drawer.seen[{first, second}]), 5)
              << first << " with " << second;
}

TEST(Plans, GiveTheLossesOfOneDevice) {
  int cases = getNumber("KILN_PLAN_CASES", fewestCases), refused = 0;
  Zoo zoo;
  Drawer drawer(getNumber("KILN_PLAN_SEED", 1));
  for (int number = 0; number < cases; ++number) {
    Draw draw = drawer.draw();
    std::string precision = number % 5 == 4 ? "f32" : "f64";
    SCOPED_TRACE(draw.family + " " + precision + " " + draw.plan.print());
    Outcome outcome = zoo.train(draw.family, precision, draw.plan);
    if (!outcome.refused.empty()) {
      ++refused;
      // The list of docs/plans.md.
      EXPECT_TRUE(outcome.refused.find("samples") != std::string::npos)
          << outcome.refused;
      continue;
    }
    double bound = precision == "f64"        ? 1e-10
                   : draw.family == "resnet" ? 1e-4
                                             : 1e-5;
    EXPECT_LE(zoo.compare(draw.family, precision, outcome), bound);
    EXPECT_EQ(outcome.receivedBytes, outcome.plannedBytes);
  }
  EXPECT_LE(refused * 10, cases);
}

} // namespace
} // namespace kiln::test
