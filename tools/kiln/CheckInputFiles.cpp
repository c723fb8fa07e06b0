// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/CheckInputFiles.h"
#include "compiler/config/DataSettings.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "runtime/data/Dataset.h"

namespace kiln {

namespace {

/// Opens the data and the data held out; `vocabulary` becomes theirs.
Status checkData(const Config &config, std::string &vocabulary) {
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
  Expected<std::unique_ptr<Dataset>> dataset =
      Dataset::open(data, heldOut, seed);
  if (!dataset.ok())
    return dataset.status();
  if (*dataset)
    vocabulary = (*dataset)->vocabulary();
  return heldOut ? Dataset::openHeldOut(data, *heldOut, seed).status()
                 : Status();
}

/// Whether the run may go on from a checkpoint, which has all weights.
bool mayResume(const Config &config, const RunOptions &run) {
  if (run.resume != "auto")
    return run.resume != "none";
  return config.checkpoint.isGiven && !run.runFolder.empty() &&
         !CheckpointStore(run.runFolder + "/checkpoints").list().empty();
}

} // namespace

Status checkInputFiles(const Config &config, const RunOptions &run) {
  std::string vocabulary;
  if (Status status = checkData(config, vocabulary); !status.ok())
    return status;
  const std::string &init = config.training.init;
  if (init.empty() || mayResume(config, run))
    return Status();
  Expected<Safetensors> weights = Safetensors::open(init);
  return weights.ok()
             ? checkVocabulary(init, vocabularyHashOf(*weights), vocabulary)
             : weights.status();
}

} // namespace kiln
