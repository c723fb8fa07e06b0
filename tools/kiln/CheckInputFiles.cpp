// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/CheckInputFiles.h"
#include "compiler/config/DataSettings.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/data/Dataset.h"

namespace kiln {

namespace {

/// Opens the data and the data held out.
Status checkData(const Config &config) {
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
  Status status = Dataset::open(data, heldOut, seed).status();
  if (status.ok() && heldOut)
    status = Dataset::openHeldOut(data, *heldOut, seed).status();
  return status;
}

/// Whether the run may go on from a checkpoint, which has all weights.
bool mayResume(const Config &config, const RunOptions &run) {
  if (run.resume != "auto")
    return run.resume != "none";
  return config.checkpoint.presence == Presence::Given &&
         !run.runFolder.empty() &&
         !CheckpointStore(run.runFolder + "/checkpoints").list().empty();
}

} // namespace

Status checkInputFiles(const Config &config, const RunOptions &run) {
  if (Status status = checkData(config); !status.ok())
    return status;
  if (config.training.init.empty() || mayResume(config, run))
    return Status();
  return Safetensors::open(config.training.init).status();
}

} // namespace kiln
