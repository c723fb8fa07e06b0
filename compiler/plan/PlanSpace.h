// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PLAN_PLANSPACE_H
#define KILN_COMPILER_PLAN_PLANSPACE_H

#include "compiler/config/Config.h"
#include "compiler/plan/Plan.h"

#include <vector>

namespace kiln {

/// A mesh and micro-batch that a config cannot have.
struct RefusedPlan {
  Plan plan;
  PlanFault fault;
};

/// The plans of a config on some device counts: every mesh of each count, ZeRO
/// stage, offload, recomputation and micro-batch. Choices that make no
/// difference are left out: a ZeRO stage without replicas, recomputed attention
/// in a model that has none, a micro-batch of at least the greatest share,
/// sequence parallelism without tensor parallelism.
struct PlanSpace {
  std::vector<int64_t> deviceCounts;
  std::vector<int64_t> stages = {0, 1, 2, 3};
  std::vector<Offload> offloads = {Offload::None, Offload::Optimizer};
  std::vector<Recompute> recomputes = {Recompute::None, Recompute::Attention,
                                       Recompute::Full};
  std::vector<int64_t> microBatches = {0};
  std::vector<bool> sequenceParallel = {true};

  /// The space around a config's own plan: up to its number of devices, or 8
  /// where it has one; its micro-batch, none, and a third of the batch, so that
  /// the last micro-batch of a step can be smaller.
  static PlanSpace around(const Config &config);

  /// Valid plans, in a fixed order; the reason for each mesh and micro-batch
  /// that is refused goes to `refused` if that is given.
  std::vector<Plan> list(const Config &config,
                         std::vector<RefusedPlan> *refused = nullptr) const;
};

/// `count` of the plans, chosen greedily: each covers the most pairs of
/// features not yet covered, the first among equals. All plans if there are
/// fewer.
std::vector<Plan> choosePlans(std::vector<Plan> plans, size_t count);

/// All divisors of a positive number, in order.
std::vector<int64_t> divisorsOf(int64_t number);

} // namespace kiln

#endif
