// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CheckConfig.h"

#include "compiler/config/CanonicalText.h"
#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"
#include "compiler/config/ShareBatch.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace kiln {

namespace {

class Checker {
public:
  Checker(Config &config, const KeyStates &states, Position top,
          Diagnostics &diagnostics)
      : config(config), states(states), top(top), diagnostics(diagnostics) {}

  void run() {
    checkModel();
    checkBatch();
    checkLength();
    checkSchedule();
    checkData();
    checkEvaluation();
    checkDevices();
  }

private:
  bool isWritten(std::string_view path) const {
    auto state = states.find(path);
    return state != states.end() && state->second.isWritten;
  }

  bool areValid(std::initializer_list<std::string_view> paths) const {
    for (std::string_view path : paths) {
      auto state = states.find(path);
      if (state == states.end() || !state->second.isValid)
        return false;
    }
    return true;
  }

  void report(std::string_view path, const std::string &message) {
    auto state = states.find(path);
    diagnostics.error(state == states.end() ? top : state->second.position,
                      std::string(path) + ": " + message);
  }

  void checkModel() {
    if (!areValid({"model.kind"}))
      return;
    switch (config.model.kind) {
    case ModelKind::Gpt:
    case ModelKind::Classifier:
      return checkTransformer();
    case ModelKind::Bert:
      checkTransformer();
      return checkPredictions();
    case ModelKind::Resnet:
      return checkStatisticsGroup();
    case ModelKind::Mlp:
    case ModelKind::File:
      return;
    }
  }

  void checkTransformer() {
    ModelConfig &model = config.model;
    if (!isWritten("model.feed_forward"))
      model.feedForward = 4 * model.hidden;
    if (!isWritten("model.max_positions"))
      model.maximumPositions = model.sequence;
    else if (areValid({"model.max_positions", "model.sequence"}) &&
             model.maximumPositions < model.sequence)
      report("model.max_positions", std::to_string(model.maximumPositions) +
                                        " is less than model.sequence = " +
                                        std::to_string(model.sequence));
    if (!areValid({"model.hidden", "model.heads"}))
      return;
    if (model.hidden % model.heads != 0)
      report("model.heads",
             std::to_string(model.heads) + " does not divide model.hidden = " +
                 std::to_string(model.hidden) + "; try " + nearDivisors());
  }

  /// The divisors of hidden next to the number of heads: "8 or 4".
  std::string nearDivisors() const {
    int64_t above = config.model.heads, below = config.model.heads;
    while (above < config.model.hidden && config.model.hidden % above != 0)
      ++above;
    while (config.model.hidden % below != 0)
      --below;
    std::string text;
    if (config.model.hidden % above == 0)
      text = std::to_string(above) + " or ";
    return text + std::to_string(below);
  }

  void checkPredictions() {
    ModelConfig &model = config.model;
    if (!isWritten("model.predictions"))
      model.predictions = (model.sequence * 15 + 99) / 100;
    else if (areValid({"model.predictions", "model.sequence"}) &&
             model.predictions > model.sequence)
      report("model.predictions", std::to_string(model.predictions) +
                                      " is more than model.sequence = " +
                                      std::to_string(model.sequence));
  }

  /// Batch norm takes whole groups: one that a micro-batch or the batch's end
  /// cuts would have other statistics.
  void checkStatisticsGroup() {
    const TrainingConfig &training = config.training;
    int64_t &group = config.model.statisticsGroup;
    bool isDefault = !isWritten("model.statistics_group");
    if (isDefault)
      group = std::min<int64_t>(32, training.globalBatch);
    if (!areValid({"training.global_batch"}) ||
        (!isDefault && !areValid({"model.statistics_group"})))
      return;
    if (training.globalBatch % group != 0)
      return report(
          "training.global_batch",
          notWholeGroups(training.globalBatch,
                         std::numeric_limits<int64_t>::max()) +
              ", or a model.statistics_group of " +
              std::to_string(greatestDivisor(training.globalBatch, group)));
    if (areValid({"training.micro_batch"}) &&
        training.microBatch < training.globalBatch &&
        training.microBatch % group != 0)
      report("training.micro_batch",
             notWholeGroups(training.microBatch, training.globalBatch));
  }

  /// Why a batch cannot be, and the nearest that can, up to a limit.
  std::string notWholeGroups(int64_t batch, int64_t limit) const {
    int64_t group = config.model.statisticsGroup;
    int64_t below = batch / group * group, above = below + group;
    std::string text = std::to_string(batch) +
                       " is not a multiple of model.statistics_group = " +
                       std::to_string(group) +
                       ", whose samples batch norm takes together; try ";
    if (below > 0)
      text += std::to_string(below);
    if (above <= limit)
      text += (below > 0 ? " or " : "") + std::to_string(above);
    return text;
  }

  static int64_t greatestDivisor(int64_t number, int64_t limit) {
    while (number % limit != 0)
      --limit;
    return limit;
  }

  void checkBatch() {
    const TrainingConfig &training = config.training;
    if (areValid({"training.global_batch", "training.micro_batch"}) &&
        training.microBatch > training.globalBatch)
      report("training.micro_batch",
             std::to_string(training.microBatch) +
                 " is more than training.global_batch = " +
                 std::to_string(training.globalBatch));
  }

  void checkLength() {
    bool hasSteps = isWritten("training.steps");
    bool hasEpochs = isWritten("training.epochs");
    if (hasSteps && hasEpochs)
      report("training.epochs",
             "given together with training.steps; wanted one of them");
    if (!hasSteps && !hasEpochs && !states.contains("training.steps"))
      diagnostics.error(states.contains("training")
                            ? states.find("training")->second.position
                            : top,
                        "missing key 'training.steps' (or 'training.epochs')");
  }

  void checkSchedule() {
    TrainingConfig &training = config.training;
    ScheduleConfig &schedule = training.schedule;
    if (!areValid({"training.schedule.kind"}))
      return;
    if (schedule.kind == ScheduleKind::Cosine) {
      if (!isWritten("training.schedule.steps")) {
        schedule.steps = training.steps;
        if (areValid({"training.epochs"}) && !isWritten("training.steps"))
          report("training.schedule.kind",
                 "cosine needs training.schedule.steps when training.epochs "
                 "is given");
      }
      if (areValid({"training.schedule.minimum",
                    "training.optimizer.learning_rate"}) &&
          schedule.minimum > training.optimizer.learningRate)
        report("training.schedule.minimum",
               printNumber(schedule.minimum) +
                   " is more than training.optimizer.learning_rate = " +
                   printNumber(training.optimizer.learningRate));
    }
  }

  void checkData() {
    if (!areValid({"model.kind", "data.kind"}))
      return;
    const Suitable suitable = suitableData(config.model.kind);
    std::string name = kindOfSection("data", config);
    if (!hasChoice(suitable.kinds, name))
      report("data.kind", "model.kind = " + kindOfSection("model", config) +
                              " trains on " + suitable.samples + "; found '" +
                              name + "', wanted " +
                              joinWords(splitChoices(suitable.kinds)));
    if (config.data.kind == DataKind::None && areValid({"training.epochs"}))
      report("training.epochs",
             "there is no data to pass over with data.kind = none; give "
             "training.steps");
  }

  struct Suitable {
    const char *kinds;
    const char *samples;
  };

  static Suitable suitableData(ModelKind kind) {
    switch (kind) {
    case ModelKind::Gpt:
      return {"text|tokens|none", "tokens"};
    case ModelKind::Bert:
      return {"documents|none", "pairs of sentences"};
    case ModelKind::Classifier:
      return {"tsv|none", "labelled sentences"};
    case ModelKind::Resnet:
      return {"idx|none", "labelled images"};
    case ModelKind::Mlp:
      return {"idx|none", "labelled samples"};
    case ModelKind::File: // It has no sequence and no vocabulary to cut by.
      return {"idx|none", "labelled samples"};
    }
    return {};
  }

  void checkEvaluation() {
    if (!config.evaluation.isGiven || !areValid({"data.kind"}))
      return;
    bool hasPath = isWritten("evaluation.path"),
         hasLabels = isWritten("evaluation.labels");
    if (config.data.kind == DataKind::None)
      report("evaluation", "held-out samples are of the kind of the data; "
                           "found data.kind = none");
    else if (!hasPath && config.evaluation.fraction == 0)
      report("evaluation.fraction", "found 0, wanted more: there is no "
                                    "evaluation.path to take samples from");
    else if (config.data.kind == DataKind::Idx && hasPath && !hasLabels)
      diagnostics.error(states.find("evaluation")->second.position,
                        "missing key 'evaluation.labels' (file of labels)");
    else if (config.data.kind != DataKind::Idx && hasLabels)
      report("evaluation.labels",
             "does not apply to data.kind = " + kindOfSection("data", config));
    else if (!hasPath && hasLabels)
      report("evaluation.labels", "wants evaluation.path beside it");
  }

  void checkDevices() {
    DevicesConfig &devices = config.devices;
    if (!areValid({"devices.count"}))
      return;
    if (devices.threads == 0) // auto
      devices.threads = std::max<int64_t>(1, availableCores() / devices.count);
    if (!areValid({"devices.mesh"}))
      return;
    MeshConfig &mesh = devices.mesh;
    if (mesh.data == 0) // auto
      mesh.data = devices.count;
    // No product of sizes that are each at most the count overflows.
    if (mesh.data > devices.count || mesh.tensor > devices.count ||
        mesh.data * mesh.tensor != devices.count)
      return report(
          "devices.mesh",
          "data * tensor = " + std::to_string(mesh.data) + " * " +
              std::to_string(mesh.tensor) +
              " is not devices.count = " + std::to_string(devices.count));
    checkShares();
  }

  // Those of devices become those of replicas, which are as fast as their
  // slowest device.
  bool resolveSpeeds(DevicesConfig &devices) {
    if (!areValid({"devices.speeds"}))
      return false;
    std::vector<double> &speeds = devices.speeds;
    int64_t found = static_cast<int64_t>(speeds.size());
    const MeshConfig &mesh = devices.mesh;
    if (found == mesh.data)
      return true;
    if (found != devices.count) {
      report("devices.speeds", "found " + std::to_string(found) +
                                   " speeds, wanted one per device, " +
                                   std::to_string(devices.count) +
                                   ", or one per replica, " +
                                   std::to_string(mesh.data));
      return false;
    }
    // The devices of a replica are neighbours.
    for (int64_t replica = 0; replica < mesh.data; ++replica)
      speeds[replica] =
          *std::min_element(speeds.begin() + replica * mesh.tensor,
                            speeds.begin() + (replica + 1) * mesh.tensor);
    speeds.resize(mesh.data);
    return true;
  }

  void checkShares() {
    DevicesConfig &devices = config.devices;
    if (isWritten("devices.speeds") && !resolveSpeeds(devices))
      return;
    int64_t batch = config.training.globalBatch;
    int64_t group = std::max<int64_t>(1, config.model.statisticsGroup);
    // A batch that is not whole groups was reported.
    if (!areValid({"model.kind", "training.global_batch"}) ||
        batch % group != 0)
      return;
    std::string error;
    if (!shareBatch(batch, devices.mesh.data, devices.speeds, group, error))
      report("training.global_batch", error);
  }

  Config &config;
  const KeyStates &states;
  Position top;
  Diagnostics &diagnostics;
};

} // namespace

void checkConfig(Config &config, const KeyStates &states, Position top,
                 Diagnostics &diagnostics) {
  Checker(config, states, top, diagnostics).run();
}

} // namespace kiln
