// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/InputFiles.h"
#include "compiler/config/Settings.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "runtime/session/VariableFiles.h"
#include "tools/kiln/CommandFiles.h"

namespace kiln {

Expected<InputFiles> InputFiles::open(const Config &config,
                                      const RunOptions &run) {
  InputFiles files;
  if (Status status = files.openData(config); !status.ok())
    return status;
  const std::string &init = config.training.init;
  if (init.empty() ||
      mayGoOn(run, config.checkpoint.presence == Presence::Given))
    return files;
  Expected<Safetensors> weights = Safetensors::open(init);
  if (!weights.ok())
    return weights.status();
  std::string vocabulary(files.data_ ? files.data_->vocabulary() : "");
  if (Status status =
          checkVocabulary(init, vocabularyHashOf(*weights), vocabulary);
      !status.ok())
    return status;
  files.weights_.emplace(std::move(*weights));
  return files;
}

Status InputFiles::openData(const Config &config) {
  flatbuffers::FlatBufferBuilder settings, heldOutSettings;
  settings.Finish(artifact::Data::Pack(settings, describeData(config).get()));
  const auto &data =
      *flatbuffers::GetRoot<artifact::Data>(settings.GetBufferPointer());
  const artifact::Evaluation *heldOut = nullptr;
  if (auto described = describeHeldOut(config)) {
    heldOutSettings.Finish(
        artifact::Evaluation::Pack(heldOutSettings, described.get()));
    heldOut = flatbuffers::GetRoot<artifact::Evaluation>(
        heldOutSettings.GetBufferPointer());
  }
  auto seed = static_cast<uint64_t>(config.training.seed);
  Expected<std::unique_ptr<Dataset>> opened =
      Dataset::open(data, heldOut, seed);
  if (!opened.ok())
    return opened.status();
  data_ = std::move(*opened);
  if (!heldOut)
    return Status();
  opened = Dataset::openHeldOut(data, *heldOut, seed);
  if (!opened.ok())
    return opened.status();
  heldOut_ = std::move(*opened);
  return Status();
}

Status InputFiles::checkModel(const artifact::Index &model) const {
  for (const artifact::Program *program : *model.images()->Get(0)->programs()) {
    if (!program->inputs())
      continue;
    for (const artifact::Input *input : *program->inputs())
      for (const Dataset *dataset : {data_.get(), heldOut_.get()})
        if (dataset && input->name()->string_view() != positionInput)
          if (Status status = dataset->checkInput(*input); !status.ok())
            return status;
  }
  return weights_ ? checkWeights(*weights_, model) : Status();
}

} // namespace kiln
