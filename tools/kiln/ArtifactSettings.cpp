// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/ArtifactSettings.h"

#include "compiler/config/Settings.h"
#include "runtime/checkpoint/ConfigChanges.h"

namespace kiln {

std::vector<std::byte> packWithSettings(const Artifact &artifact,
                                        const Config &config) {
  std::unique_ptr<artifact::IndexT> index(artifact.index().UnPack());
  index->settings = describeSettings(config);
  flatbuffers::FlatBufferBuilder builder;
  artifact::FinishIndexBuffer(builder,
                              artifact::Index::Pack(builder, index.get()));
  std::vector<Section> sections = artifact.sections();
  for (Section &section : sections)
    if (section.name == indexSectionName)
      section.bytes = std::as_bytes(
          std::span(builder.GetBufferPointer(), builder.GetSize()));
  return packContainer(sections);
}

/// In a config file the end of a cosine follows the number of steps unless it
/// is given, but the artifact's config spells it out.
static void moveCosineEnd(const Config &before,
                          std::vector<std::string> &overrides) {
  const TrainingConfig &training = before.training;
  if (training.schedule.kind != ScheduleKind::Cosine ||
      training.schedule.steps != training.steps)
    return;
  constexpr std::string_view steps = "training.steps=",
                             end = "training.schedule.steps=",
                             kind = "training.schedule.kind=";
  std::string moved;
  for (const std::string &override : overrides)
    if (override.starts_with("training.schedule=") ||
        override.starts_with(end) ||
        (override.starts_with(kind) && !override.ends_with("cosine")))
      return;
    else if (override.starts_with(steps))
      moved = std::string(end) + override.substr(steps.size());
  if (!moved.empty())
    overrides.push_back(moved);
}

Expected<Config> changeSettings(const Artifact &artifact,
                                std::vector<std::string> overrides) {
  Diagnostics diagnostics;
  diagnostics.hasPlaces = false; // The text is inside the artifact.
  std::string text = artifact.settings().config()->str();
  std::optional<Config> before =
      parseConfig(text, artifact.origin(), {}, diagnostics);
  if (!before)
    return Status(Code::inputRejected, diagnostics.text());
  moveCosineEnd(*before, overrides);
  std::optional<Config> config =
      parseConfig(text, artifact.origin(), overrides, diagnostics);
  if (!config)
    return Status(Code::usage, diagnostics.text());
  std::string changes =
      describeChanges(before->printProgram(), config->printProgram());
  if (!changes.empty())
    return Status(Code::usage,
                  "kiln: error: " + artifact.origin() +
                      ": these keys are compiled into it:" + changes +
                      "\nkiln compile or kiln train with these values makes "
                      "another; kiln help config marks the keys that kiln run "
                      "takes with *\n");
  return *config;
}

} // namespace kiln
