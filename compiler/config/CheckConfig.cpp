// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CheckConfig.h"

#include "compiler/config/CanonicalText.h"
#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"
#include "compiler/plan/ShareBatch.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <set>

namespace kiln {

namespace {

class Checker {
public:
  Checker(Config &config, const KeyStates &states, Position top,
          Diagnostics &diagnostics)
      : config(config), states(states), top(top), diagnostics(diagnostics) {}

  void run() {
    checkModel();
    checkLength();
    checkLossScale();
    checkSchedule();
    checkData();
    checkEvaluation();
    resolveThreads();
    checkPlan();
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

  /// Batch norm needs complete groups: one truncated by the end of the batch
  /// would have other statistics.
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
      report("training.global_batch",
             describeBrokenGroups(training.globalBatch, group,
                                  std::numeric_limits<int64_t>::max()) +
                 ", or a model.statistics_group of " +
                 std::to_string(greatestDivisor(training.globalBatch, group)));
  }

  static int64_t greatestDivisor(int64_t number, int64_t limit) {
    while (number % limit != 0)
      --limit;
    return limit;
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

  void checkLossScale() {
    const PrecisionPolicy &precision = config.training.precision;
    if (!areValid({"training.precision"}) || precision.scalesLoss())
      return;
    // The text of a complete config has the defaults of all keys.
    const LossScaleConfig &scale = config.training.lossScale, defaults;
    for (auto [key, isOther] :
         {std::pair("training.loss_scale.initial",
                    scale.initial != defaults.initial),
          std::pair("training.loss_scale.growth_steps",
                    scale.growthSteps != defaults.growthSteps)})
      if (isOther)
        report(key,
               "scales nothing with training.precision = " + precision.print() +
                   "; wanted f16 for some part, or this key left out");
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
    case ModelKind::File: // It has no sequence to split text by, no vocabulary.
      return {"idx|none", "labelled samples"};
    }
    return {};
  }

  void checkEvaluation() {
    if (!hasSection("evaluation", config) || !areValid({"data.kind"}))
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

  void resolveThreads() {
    DevicesConfig &devices = config.devices;
    if (areValid({"devices.count"}) && devices.threads == 0) // auto
      devices.threads = std::max<int64_t>(1, availableCores() / devices.count);
  }

  /// The key of a reported fault suppresses faults that follow from it.
  void checkPlan() {
    Resolution resolution = resolveRequests(config);
    std::vector<PlanFault> faults = std::move(resolution.faults);
    for (PlanFault &fault : findFaults(resolution.plan, config))
      faults.push_back(std::move(fault));
    std::set<std::string_view> blamed;
    for (const PlanFault &fault : faults) {
      bool isNews =
          std::all_of(fault.causes.begin(), fault.causes.end(),
                      [&](std::string_view cause) {
                        return isUsable(cause) && !blamed.contains(cause);
                      });
      if (!isNews)
        continue;
      report(fault.key, fault.reason);
      blamed.insert(fault.key);
    }
  }

  /// Whether a key has a value that was not reported: one that was written, a
  /// default, or one computed from others.
  bool isUsable(std::string_view path) const {
    auto state = states.find(path);
    if (state != states.end())
      return state->second.isValid;
    const Key *key = findKey(path, kindOfSection("model", config));
    return !key || !key->isRequired();
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
