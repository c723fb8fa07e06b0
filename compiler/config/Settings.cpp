// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Settings.h"

#include "compiler/config/Schema.h"

namespace kiln {

std::unique_ptr<artifact::DataT> describeData(const Config &config) {
  auto data = std::make_unique<artifact::DataT>();
  data->kind = kindOfSection("data", config);
  data->path = config.data.path;
  data->labels_path = config.data.labels;
  data->tokenizer = config.data.tokenizer;
  data->width = static_cast<uint32_t>(config.data.width / 8);
  data->shuffle = config.data.shuffle;
  data->sequence = static_cast<uint64_t>(config.model.sequence);
  data->vocabulary = static_cast<uint64_t>(config.model.vocabulary);
  data->classes = static_cast<uint64_t>(config.model.classes);
  data->vocabulary_path = config.data.vocabulary;
  data->predictions = static_cast<uint64_t>(config.model.predictions);
  return data;
}

std::unique_ptr<artifact::EvaluationT> describeHeldOut(const Config &config) {
  if (config.evaluation.presence != Presence::Given)
    return nullptr;
  auto heldOut = std::make_unique<artifact::EvaluationT>();
  heldOut->every = static_cast<uint64_t>(config.evaluation.every);
  heldOut->path = config.evaluation.path;
  heldOut->labels_path = config.evaluation.labels;
  heldOut->fraction = config.evaluation.fraction;
  return heldOut;
}

static std::unique_ptr<artifact::TrainingT>
describeTraining(const Config &config) {
  const TrainingConfig &training = config.training;
  const ScheduleConfig &schedule = training.schedule;
  auto table = std::make_unique<artifact::TrainingT>();
  table->global_batch = static_cast<uint64_t>(training.globalBatch);
  table->steps = static_cast<uint64_t>(training.steps);
  table->epochs = static_cast<uint64_t>(training.epochs);
  table->seed = static_cast<uint64_t>(training.seed);
  table->log_every = static_cast<uint64_t>(config.log.every);
  table->init = training.init;
  bool falls = schedule.kind == ScheduleKind::Cosine;
  table->learning_rate = training.optimizer.learningRate;
  table->minimum_rate =
      falls ? schedule.minimum : training.optimizer.learningRate;
  table->warmup = static_cast<uint64_t>(schedule.warmup);
  table->schedule_steps = static_cast<uint64_t>(schedule.steps);
  return table;
}

std::unique_ptr<artifact::SettingsT> describeSettings(const Config &config) {
  auto settings = std::make_unique<artifact::SettingsT>();
  settings->config = config.print();
  settings->data = describeData(config);
  settings->training = describeTraining(config);
  settings->evaluation = describeHeldOut(config);
  // None leaves zeros: nothing is saved.
  if (config.checkpoint.presence != Presence::Absent) {
    settings->checkpoint = std::make_unique<artifact::CheckpointPolicyT>();
    settings->checkpoint->every =
        static_cast<uint64_t>(config.checkpoint.every);
    settings->checkpoint->keep = static_cast<uint64_t>(config.checkpoint.keep);
  }
  return settings;
}

} // namespace kiln
