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

/// Features of a draw, of those that can be combined.
std::vector<std::string> getFeatures(const Draw &draw) {
  std::vector<std::string> features;
  auto add = [&](bool has, std::string name) {
    if (has)
      features.push_back(std::move(name));
  };
  const Plan &plan = draw.plan;
  add(plan.mesh.data > 1, "data");
  add(plan.mesh.tensor > 1, "tensor");
  add(plan.zero > 0, "zero" + std::to_string(plan.zero));
  add(plan.offload != Offload::None, "offload");
  add(plan.recompute != Recompute::None,
      "recompute-" + std::string(wordOf(plan.recompute)));
  add(plan.microBatch > 0, "accumulation");
  add(!plan.speeds.empty(), "unequal");
  add(draw.model.isNarrow(), "narrow");
  return features;
}

class Drawer {
public:
  Drawer(Zoo &zoo, uint64_t seed) : zoo(zoo), generator(seed) {}

  /// Of some plans of a model, the one that shows most of the features seen
  /// least: pairs of them, and every fifth time one alone.
  Draw draw() {
    Draw best;
    double bestScore = -1;
    for (Draw &candidate : drawCandidates()) {
      double score = 0;
      for (const Shown &shown : getShown(candidate))
        score +=
            std::max(0.0, fewestShown - seen[shown]) + 1.0 / (1 + seen[shown]);
      if (score > bestScore) {
        best = std::move(candidate);
        bestScore = score;
      }
    }
    for (const Shown &shown : getShown(best))
      ++seen[shown];
    // f32 for every fourth of a family, from its second on.
    if (ofFamily[best.model.family]++ % 4 == 1 && !best.model.isNarrow())
      best.model.precision = "f32";
    ++drawn;
    return best;
  }

  /// A pair of features, or a single one and an empty string.
  using Shown = std::pair<std::string, std::string>;
  std::map<Shown, int> seen;
  std::map<std::string, int> ofFamily;

private:
  bool isOneFeatureWanted() const { return drawn % 5 == 4; }

  std::vector<Shown> getShown(const Draw &draw) {
    std::vector<std::string> features = getFeatures(draw);
    if (isOneFeatureWanted())
      return features.size() == 1 ? std::vector<Shown>{{features[0], ""}}
                                  : std::vector<Shown>{};
    std::vector<Shown> pairs;
    for (size_t i = 0; i < features.size(); ++i)
      for (size_t j = i + 1; j < features.size(); ++j)
        pairs.push_back({features[i], features[j]});
    return pairs;
  }

  std::vector<Draw> drawCandidates() {
    // In turn; compiling a ResNet takes as long as three other models.
    static const char *families[] = {"gpt",  "bert",       "classifier", "gpt",
                                     "bert", "mlp",        "gpt",        "bert",
                                     "mlp",  "classifier", "resnet"};
    Model model;
    model.family = families[drawn % std::size(families)];
    model.sizes = generator() % (3 + drawn / 20);
    const std::vector<Plan> &plans = zoo.plansOf(model);
    std::vector<Draw> candidates;
    if (isOneFeatureWanted()) { // Too few to be met by chance.
      for (const Plan &plan : plans)
        if (getFeatures({model, plan}).size() == 1)
          candidates.push_back({model, plan});
      return candidates;
    }
    static const char *policies[] = {
        "bf16", "f16", "{preset: bf16, gradients: bf16}",
        "{preset: bf16, master: none}", "{preset: bf16, messages: f32}"};
    for (int attempt = 0; attempt < 60; ++attempt) {
      Draw draw = {model, plans[generator() % plans.size()]};
      if (generator() % 3 == 0)
        draw.model.precision = policies[generator() % std::size(policies)];
      bool isUnequal = draw.plan.mesh.data > 1 && generator() % 4 == 0;
      for (int64_t i = 0; isUnequal && i < draw.plan.mesh.data; ++i)
        draw.plan.speeds.push_back(double(1 + i % 2));
      candidates.push_back(std::move(draw));
    }
    return candidates;
  }

  Zoo &zoo;
  int drawn = 0;
  std::mt19937_64 generator;
};

int getNumber(const char *name, int otherwise) {
  const char *text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

TEST(Plans, ShowEveryPairOfFeatures) {
  // Features of a line exclude each other.
  const std::vector<std::vector<std::string>> features = {
      {"data"},
      {"tensor"},
      {"zero1", "zero2", "zero3"},
      {"offload"},
      {"recompute-attention", "recompute-full"},
      {"accumulation"},
      {"unequal"},
      {"narrow"}};
  Zoo zoo;
  Drawer drawer(zoo, getNumber("KILN_PLAN_SEED", 1));
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
  // Cases before the first are drawn, but not trained.
  int first = getNumber("KILN_PLAN_FIRST", 1);
  int cases = getNumber("KILN_PLAN_CASES", fewestCases);
  Zoo zoo;
  Drawer drawer(zoo, getNumber("KILN_PLAN_SEED", 1));
  for (int number = 0; number < cases; ++number) {
    Draw draw = drawer.draw();
    if (number + 1 < first)
      continue;
    const Model &model = draw.model;
    std::string what = model.print() + " " + draw.plan.name();
    SCOPED_TRACE(what);
    Outcome outcome = zoo.train(model, draw.plan);
    // The space has only valid plans.
    EXPECT_EQ(outcome.refused, "");
    double deviation = zoo.compare(model, outcome);
    printf("%d of %d: %.1e %s\n", number + 1, cases, deviation, what.c_str());
    fflush(stdout);
    EXPECT_LE(deviation, model.bound());
    EXPECT_EQ(outcome.receivedBytes, outcome.plannedBytes);
  }
}

} // namespace
} // namespace kiln::test
