// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/plan/PlanSpace.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace kiln {

namespace {

bool mayHaveAttention(const ModelConfig &model) {
  switch (model.kind) {
  case ModelKind::Gpt:
  case ModelKind::Bert:
  case ModelKind::Classifier:
  case ModelKind::File:
    return true;
  case ModelKind::Resnet:
  case ModelKind::Mlp:
    return false;
  }
  return true;
}

/// Whether a plan makes the same program as another of the space.
bool isRepeated(const PlanSpace &space, const Config &config,
                const Plan &plan) {
  return (plan.zero > 0 && plan.mesh.data == 1) ||
         (plan.recompute == Recompute::Attention &&
          !mayHaveAttention(config.model)) ||
         (plan.mesh.tensor == 1 &&
          plan.isSequenceParallel != space.sequenceParallel.front());
}

/// Adds the plans of a mesh with micro-batches that are valid for it.
void addPlans(const PlanSpace &space, const Config &config, MeshShape mesh,
              const std::vector<int64_t> &microBatches,
              std::vector<Plan> &plans) {
  for (bool isSequenceParallel : space.sequenceParallel)
    for (int64_t zero : space.stages)
      for (Offload offload : space.offloads)
        for (Recompute recompute : space.recomputes)
          for (int64_t microBatch : microBatches) {
            Plan plan = {mesh,      zero,       offload,
                         recompute, microBatch, isSequenceParallel,
                         {}};
            if (!isRepeated(space, config, plan))
              plans.push_back(std::move(plan));
          }
}

/// The micro-batches of the space that are valid for a mesh, as they are run: 0
/// where no replica accumulates.
std::vector<int64_t> findMicroBatches(const PlanSpace &space,
                                      const Config &config, MeshShape mesh,
                                      std::vector<RefusedPlan> *refused) {
  std::vector<int64_t> found;
  for (int64_t microBatch : space.microBatches) {
    Plan plan;
    plan.mesh = mesh;
    plan.microBatch = microBatch;
    std::vector<PlanFault> faults = findFaults(plan, config);
    if (!faults.empty()) {
      if (refused)
        refused->push_back({plan, faults.front()});
      continue;
    }
    std::vector<int64_t> shares = plan.shares(config);
    if (microBatch >= *std::max_element(shares.begin(), shares.end()))
      microBatch = 0;
    if (std::find(found.begin(), found.end(), microBatch) == found.end())
      found.push_back(microBatch);
  }
  return found;
}

using FeaturePair = std::pair<std::string, std::string>;

std::vector<FeaturePair> pairsOf(const Plan &plan) {
  std::vector<FeaturePair> pairs;
  std::vector<std::string> features = plan.features();
  for (size_t i = 0; i < features.size(); ++i)
    for (size_t j = i + 1; j < features.size(); ++j)
      pairs.emplace_back(features[i], features[j]);
  return pairs;
}

} // namespace

std::vector<int64_t> divisorsOf(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0)
      divisors.push_back(divisor);
  return divisors;
}

PlanSpace PlanSpace::around(const Config &config) {
  Plan own = resolvePlan(config);
  PlanSpace space;
  space.deviceCounts = own.mesh.devices() > 1
                           ? divisorsOf(own.mesh.devices())
                           : std::vector<int64_t>{1, 2, 4, 8};
  int64_t group = std::max<int64_t>(1, config.model.statisticsGroup);
  int64_t third =
      std::max<int64_t>(1, (config.training.globalBatch / group + 2) / 3) *
      group;
  std::set<int64_t> microBatches = {own.microBatch, 0, third};
  space.microBatches.assign(microBatches.begin(), microBatches.end());
  space.sequenceParallel = {own.isSequenceParallel};
  return space;
}

std::vector<Plan> PlanSpace::list(const Config &config,
                                  std::vector<RefusedPlan> *refused) const {
  std::vector<Plan> plans;
  for (int64_t count : deviceCounts)
    for (int64_t tensor : divisorsOf(count)) {
      MeshShape mesh = {count / tensor, tensor};
      addPlans(*this, config, mesh,
               findMicroBatches(*this, config, mesh, refused), plans);
    }
  return plans;
}

std::vector<Plan> choosePlans(std::vector<Plan> plans, size_t count) {
  if (plans.size() <= count)
    return plans;
  std::set<FeaturePair> shown;
  std::vector<Plan> chosen;
  while (chosen.size() < count) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < plans.size(); ++i) {
      size_t fresh = 0;
      for (const FeaturePair &pair : pairsOf(plans[i]))
        fresh += !shown.contains(pair);
      if (fresh > most) {
        best = i;
        most = fresh;
      }
    }
    for (const FeaturePair &pair : pairsOf(plans[best]))
      shown.insert(pair);
    chosen.push_back(std::move(plans[best]));
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return chosen;
}

} // namespace kiln
