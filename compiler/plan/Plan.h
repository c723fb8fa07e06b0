// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PLAN_PLAN_H
#define KILN_COMPILER_PLAN_PLAN_H

#include "compiler/config/Choices.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct Config;

/// Most devices that a plan supports.
constexpr int64_t maximumDevices = int64_t(1) << 16;
constexpr int64_t maximumZeroStage = 3;

/// Sizes of the mesh axes; rank of a device = data * (size of tensor) + tensor.
struct MeshShape {
  int64_t data = 1;
  int64_t tensor = 1;

  int64_t devices() const { return data * tensor; }
  bool operator==(const MeshShape &) const = default;
};

/// All decisions of the search, none of which changes the losses. A config
/// holds requests; `resolvePlan` turns them into a plan.
struct Plan {
  MeshShape mesh;
  int64_t zero = 0; // stage
  Offload offload = Offload::None;
  Recompute recompute = Recompute::None;
  int64_t microBatch = 0; // samples, at most a replica's share; 0: the share
  bool isSequenceParallel = true;
  std::vector<double> speeds; // one per replica; empty: all alike

  bool operator==(const Plan &) const = default;

  /// Samples of the global batch for each replica: in proportion to the speeds,
  /// in multiples of statistics groups. The plan must be valid for the config.
  std::vector<int64_t> shares(const Config &config) const;

  /// Samples of one micro-batch of a replica that has `share` samples of the
  /// batch; the last of a step may be smaller.
  int64_t microBatchSize(int64_t share) const {
    return microBatch ? std::min(microBatch, share) : share;
  }
  /// Micro-batches of one step of such a replica.
  int64_t accumulation(int64_t share) const {
    return (share + microBatchSize(share) - 1) / microBatchSize(share);
  }

  /// One word per decision, such as "zero=2", for coverage of pairs.
  std::vector<std::string> features() const;
  /// The features, and all else that differs from the default.
  std::string name() const;
  /// `key=value` for every key of the plan: a config with them has this plan.
  std::vector<std::string> overrides() const;
};

/// Why a plan is not valid, at the key that a user would change.
struct PlanFault {
  std::string_view key;
  std::string reason;
  /// Keys that the reason follows from. If one of them is itself invalid, the
  /// fault need not be reported.
  std::vector<std::string_view> causes;
};

/// All reasons why a config's model and batch cannot have the plan, whatever
/// the number of its devices; empty: valid.
std::vector<PlanFault> findFaults(const Plan &plan, const Config &config);

/// The plan resolved from the requests of a config, and the requests that
/// cannot be met, for which the plan has defaults.
struct Resolution {
  Plan plan;
  std::vector<PlanFault> faults;
};
Resolution resolveRequests(const Config &config);

/// The plan of a config that was checked. This is where `auto` becomes a
/// decision: data parallel over all devices, nothing else split, offloaded,
/// recomputed or accumulated.
Plan resolvePlan(const Config &config);

} // namespace kiln

#endif
