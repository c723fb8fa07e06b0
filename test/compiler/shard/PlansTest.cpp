// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same step on every plan: random meshes, stages and splits of models whose
// sizes nothing divides give the losses of one device, receive the bytes that
// the plan says and reserve the memory that it says.
#include "test/compiler/shard/PlanCase.h"

#include <gtest/gtest.h>
#include <random>

namespace kiln::test {
namespace {

constexpr int fewestCases = 40;
constexpr double fewestShown = 5; // Of every pair of features.

struct Draw {
  Model model;
  Plan plan;
};

/// What a draw has, of what can be had together.
std::vector<std::string> getFeatures(const Draw &draw) {
  std::vector<std::string> features;
  auto add = [&](bool has, std::string name) {
    if (has)
      features.push_back(std::move(name));
  };
  const Plan &plan = draw.plan;
  int64_t share = (draw.model.globalBatch() + plan.data - 1) / plan.data;
  add(plan.data > 1, "data");
  add(plan.tensor > 1, "tensor");
  add(plan.zero > 0, "zero" + std::to_string(plan.zero));
  add(plan.offload != "none", "offload");
  add(plan.recompute != "none", "recompute-" + plan.recompute);
  add(plan.microBatch > 0 && plan.microBatch < share, "accumulation");
  add(!plan.speeds.empty(), "unequal");
  return features;
}

class Drawer {
public:
  explicit Drawer(uint64_t seed) : generator(seed) {}

  /// Of some draws the one that shows most of what was seen least: pairs of
  /// features, and every fifth time a feature on its own.
  Draw draw() {
    Draw best;
    double bestScore = -1;
    for (int attempt = 0; attempt < 60; ++attempt) {
      Draw candidate = drawOne();
      double score = 0;
      for (const Shown &shown : getShown(candidate))
        score +=
            std::max(0.0, fewestShown - seen[shown]) + 1.0 / (1 + seen[shown]);
      if (score > bestScore) {
        best = candidate;
        bestScore = score;
      }
    }
    for (const Shown &shown : getShown(best))
      ++seen[shown];
    // f32 for every fourth of a family, from its second on.
    if (ofFamily[best.model.family]++ % 4 == 1)
      best.model.precision = "f32";
    ++drawn;
    return best;
  }

  /// A pair of features, or one alone and nothing.
  using Shown = std::pair<std::string, std::string>;
  std::map<Shown, int> seen;
  std::map<std::string, int> ofFamily;

private:
  std::vector<Shown> getShown(const Draw &draw) {
    std::vector<std::string> features = getFeatures(draw);
    if (drawn % 5 == 4)
      return features.size() == 1 ? std::vector<Shown>{{features[0], ""}}
                                  : std::vector<Shown>{};
    std::vector<Shown> pairs;
    for (size_t i = 0; i < features.size(); ++i)
      for (size_t j = i + 1; j < features.size(); ++j)
        pairs.push_back({features[i], features[j]});
    return pairs;
  }

  template <typename T> T pick(std::vector<T> values) {
    return values[generator() % values.size()];
  }

  Draw drawOne() {
    Draw draw;
    // In turn; compiling a ResNet takes as long as three of the others.
    static const char *families[] = {"gpt",  "bert",       "classifier", "gpt",
                                     "bert", "mlp",        "gpt",        "bert",
                                     "mlp",  "classifier", "resnet"};
    draw.model.family = families[drawn % std::size(families)];
    draw.model.sizes = generator() % (3 + drawn / 20);
    Plan &plan = draw.plan;
    plan.data = pick<int64_t>({1, 2, 3, 4, 5, 8});
    plan.tensor = pick<int64_t>({1, 2, 3, 4, 8});
    while (plan.data * plan.tensor > 8)
      (plan.data > plan.tensor ? plan.data : plan.tensor) /= 2;
    bool isResnet = draw.model.family == "resnet";
    if (isResnet) // Three groups of samples.
      plan.data = std::min<int64_t>(plan.data, 3);
    plan.zero = plan.data > 1 ? pick<int64_t>({0, 1, 2, 3}) : 0;
    plan.offload = pick<std::string>({"none", "none", "optimizer"});
    plan.recompute = pick<std::string>({"none", "full", "attention"});
    if (plan.recompute == "attention" && !draw.model.hasAttention())
      plan.recompute = "none";
    plan.microBatch =
        isResnet ? pick<int64_t>({0, 4}) : pick<int64_t>({0, 1, 2, 3});
    plan.isSequenceParallel = pick<int>({0, 1, 1});
    if (plan.data > 1 && pick<int>({0, 0, 0, 1}))
      for (int64_t replica = 0; replica < plan.data; ++replica)
        plan.speeds.push_back(double(1 + replica % 2));
    return draw;
  }

  int drawn = 0;
  std::mt19937_64 generator;
};

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
      {"accumulation"},
      {"unequal"}};
  Drawer drawer(getNumber("KILN_PLAN_SEED", 1));
  for (int number = 0; number < fewestCases; ++number)
    drawer.draw();
  for (size_t i = 0; i < features.size(); ++i)
    for (size_t j = i + 1; j < features.size(); ++j)
      for (const std::string &first : features[i])
        for (const std::string &second : features[j])
          EXPECT_GE((drawer.seen[{first, second}]), fewestShown)
              << first << " with " << second;
  for (const char *feature : {"data", "tensor", "accumulation"})
    EXPECT_GE((drawer.seen[{feature, ""}]), 1) << feature << " alone";
  for (const auto &[family, count] : drawer.ofFamily)
    EXPECT_GE(count, 2) << family << ": not in both precisions";
}

TEST(Plans, GiveTheLossesOfOneDevice) {
  // Those before the first are drawn, but not trained.
  int first = getNumber("KILN_PLAN_FIRST", 1);
  int cases = getNumber("KILN_PLAN_CASES", fewestCases), refused = 0;
  Zoo zoo;
  Drawer drawer(getNumber("KILN_PLAN_SEED", 1));
  for (int number = 0; number < cases; ++number) {
    Draw draw = drawer.draw();
    if (number + 1 < first)
      continue;
    const Model &model = draw.model;
    std::string what = model.print() + " " + draw.plan.print();
    SCOPED_TRACE(what);
    Outcome outcome = zoo.train(model, draw.plan);
    if (!outcome.refused.empty()) {
      ++refused;
      // The list of docs/plans.md.
      EXPECT_TRUE(outcome.refused.find(" are too few for ") !=
                  std::string::npos)
          << outcome.refused;
      continue;
    }
    double bound = model.precision == "f64"   ? 1e-10
                   : model.family == "resnet" ? 1e-4
                                              : 1e-5;
    double deviation = zoo.compare(model, outcome);
    printf("%d of %d: %.1e %s\n", number + 1, cases, deviation, what.c_str());
    fflush(stdout);
    EXPECT_LE(deviation, bound);
    EXPECT_EQ(outcome.receivedBytes, outcome.plannedBytes);
  }
  EXPECT_LE(refused * 10, cases);
}

} // namespace
} // namespace kiln::test
