// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/plan/Plan.h"

#include "compiler/config/CanonicalText.h"
#include "compiler/config/Config.h"
#include "compiler/plan/ShareBatch.h"

namespace kiln {

namespace {

int64_t groupOf(const Config &config) {
  return std::max<int64_t>(1, config.model.statisticsGroup);
}

std::string printSpeeds(const std::vector<double> &speeds) {
  if (speeds.empty())
    return "auto";
  std::string text;
  for (double speed : speeds)
    text += (text.empty() ? "[" : ", ") + printNumber(speed);
  return text + "]";
}

std::string printMicroBatch(int64_t microBatch) {
  return microBatch ? std::to_string(microBatch) : "none";
}

/// Speeds of replicas, given those of devices or replicas: a replica is as fast
/// as its slowest device, and its devices have consecutive ranks. Empty where
/// all are alike.
std::vector<double> speedsOfReplicas(const std::vector<double> &speeds,
                                     const MeshShape &mesh) {
  std::vector<double> slowest(
      speeds.begin(), speeds.begin() + (speeds.empty() ? 0 : mesh.data));
  bool isPerDevice = static_cast<int64_t>(speeds.size()) != mesh.data;
  for (int64_t replica = 0;
       isPerDevice && !speeds.empty() && replica < mesh.data; ++replica)
    slowest[replica] =
        *std::min_element(speeds.begin() + replica * mesh.tensor,
                          speeds.begin() + (replica + 1) * mesh.tensor);
  bool areAlike = std::adjacent_find(slowest.begin(), slowest.end(),
                                     std::not_equal_to<>()) == slowest.end();
  return areAlike ? std::vector<double>() : slowest;
}

} // namespace

std::vector<int64_t> Plan::shares(const Config &config) const {
  std::string error; // A valid plan has none.
  return shareBatch(config.training.globalBatch, mesh.data, speeds,
                    groupOf(config), error)
      .value();
}

std::vector<std::string> Plan::features() const {
  return {"data=" + std::to_string(mesh.data),
          "tensor=" + std::to_string(mesh.tensor),
          "zero=" + std::to_string(zero),
          "offload=" + std::string(wordOf(offload)),
          "recompute=" + std::string(wordOf(recompute)),
          "micro=" + printMicroBatch(microBatch)};
}

std::string Plan::name() const {
  std::string text;
  for (const std::string &feature : features())
    text += (text.empty() ? "" : " ") + feature;
  if (!isSequenceParallel)
    text += " sequence_parallel=false";
  return speeds.empty() ? text : text + " speeds=" + printSpeeds(speeds);
}

std::vector<std::string> Plan::overrides() const {
  return {"devices.count=" + std::to_string(mesh.devices()),
          "devices.mesh={data: " + std::to_string(mesh.data) +
              ", tensor: " + std::to_string(mesh.tensor) + "}",
          "devices.zero=" + std::to_string(zero),
          "devices.offload=" + std::string(wordOf(offload)),
          "devices.recompute=" + std::string(wordOf(recompute)),
          std::string("devices.sequence_parallel=") +
              (isSequenceParallel ? "true" : "false"),
          "devices.speeds=" + printSpeeds(speeds),
          "training.micro_batch=" + printMicroBatch(microBatch)};
}

std::vector<PlanFault> findFaults(const Plan &plan, const Config &config) {
  std::vector<PlanFault> faults;
  int64_t batch = config.training.globalBatch, group = groupOf(config);
  if (plan.microBatch > batch)
    faults.push_back(
        {"training.micro_batch",
         std::to_string(plan.microBatch) +
             " is more than training.global_batch = " + std::to_string(batch),
         {"training.global_batch", "training.micro_batch"}});
  if (batch % group != 0)
    return faults; // No plan at all: a fault of the config.
  // Batch norm would have other statistics in a group that is split.
  if (plan.microBatch < batch && plan.microBatch % group != 0)
    faults.push_back({"training.micro_batch",
                      describeBrokenGroups(plan.microBatch, group, batch),
                      {"training.global_batch", "training.micro_batch",
                       "model.statistics_group"}});
  std::string error;
  if (!shareBatch(batch, plan.mesh.data, plan.speeds, group, error))
    faults.push_back(
        {"training.global_batch",
         error,
         {"model.kind", "training.global_batch", "model.statistics_group",
          "devices.count", "devices.mesh", "devices.speeds"}});
  return faults;
}

static void resolveMesh(const Config &config, Resolution &resolution) {
  const DevicesConfig &devices = config.devices;
  MeshShape mesh = devices.mesh.value_or(MeshShape{devices.count, 1});
  if (mesh.devices() == devices.count) {
    resolution.plan.mesh = mesh;
    return;
  }
  resolution.faults.push_back(
      {"devices.mesh",
       "data * tensor = " + std::to_string(mesh.data) + " * " +
           std::to_string(mesh.tensor) +
           " is not devices.count = " + std::to_string(devices.count),
       {"devices.count", "devices.mesh"}});
}

static void resolveSpeeds(const Config &config, Resolution &resolution) {
  const DevicesConfig &devices = config.devices;
  int64_t found = static_cast<int64_t>(devices.speeds.size());
  const MeshShape &mesh = resolution.plan.mesh;
  if (found == 0 || found == mesh.data || found == mesh.devices()) {
    resolution.plan.speeds = speedsOfReplicas(devices.speeds, mesh);
    return;
  }
  resolution.faults.push_back(
      {"devices.speeds",
       "found " + std::to_string(found) + " speeds, wanted one per device, " +
           std::to_string(devices.count) + ", or one per replica, " +
           std::to_string(mesh.data),
       {"devices.count", "devices.mesh", "devices.speeds"}});
}

static void resolveMicroBatch(const Config &config, Resolution &resolution) {
  const MicroBatchRequest &request = config.training.microBatch;
  switch (request.kind) {
  case MicroBatchRequest::Kind::None:
  case MicroBatchRequest::Kind::Auto:
    resolution.plan.microBatch = 0;
    return;
  case MicroBatchRequest::Kind::Number:
    resolution.plan.microBatch = request.least;
    return;
  case MicroBatchRequest::Kind::Explore:
  case MicroBatchRequest::Kind::Range:
    resolution.faults.push_back(
        {"training.micro_batch",
         "search over micro-batch sizes is not available yet; give auto, a "
         "number or none",
         {"training.micro_batch"}});
    return;
  }
}

Resolution resolveRequests(const Config &config) {
  const DevicesConfig &devices = config.devices;
  Resolution resolution;
  resolveMesh(config, resolution);
  resolveSpeeds(config, resolution);
  resolveMicroBatch(config, resolution);
  Plan &plan = resolution.plan;
  plan.zero = devices.zero.value_or(0);
  plan.offload = devices.offload.value_or(Offload::None);
  plan.recompute = devices.recompute.value_or(Recompute::None);
  plan.isSequenceParallel = devices.isSequenceParallel;
  return resolution;
}

Plan resolvePlan(const Config &config) { return resolveRequests(config).plan; }

} // namespace kiln
