// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CheckConfig.h"

#include "compiler/config/CanonicalText.h"
#include "compiler/config/Schema.h"

#include <initializer_list>

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
    ModelConfig &model = config.model;
    if (!areValid({"model.kind"}) || model.kind != ModelKind::Gpt)
      return;
    if (!isWritten("model.feed_forward"))
      model.feedForward = 4 * model.hidden;
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
    DataKind kind = config.data.kind;
    bool isTokens = kind == DataKind::Text || kind == DataKind::Tokens;
    std::string name = kindOfSection("data", config);
    if (config.model.kind == ModelKind::Gpt && kind == DataKind::Idx)
      report("data.kind", "model.kind = gpt trains on tokens; found '" + name +
                              "', wanted text, tokens or none");
    if (config.model.kind == ModelKind::Mlp && isTokens)
      report("data.kind",
             "model.kind = mlp trains on labelled samples; found '" + name +
                 "', wanted idx or none");
    if (kind == DataKind::None && areValid({"training.epochs"}))
      report("training.epochs",
             "there is no data to pass over with data.kind = none; give "
             "training.steps");
  }

  void checkDevices() {
    if (areValid({"devices.count"}) && config.devices.count != 1)
      report("devices.count",
             "found " + std::to_string(config.devices.count) +
                 "; more than one device is not available yet");
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
