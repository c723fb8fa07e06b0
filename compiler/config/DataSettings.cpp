// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/DataSettings.h"

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

} // namespace kiln
