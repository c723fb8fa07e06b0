// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/Artifact.h"
#include "runtime/artifact/ArtifactChecks.h"

namespace kiln {

uint64_t elementBytes(artifact::ElementType type) {
  switch (type) {
  case artifact::ElementType::f32:
  case artifact::ElementType::i32:
    return 4;
  case artifact::ElementType::f64:
  case artifact::ElementType::i64:
    return 8;
  case artifact::ElementType::i1:
    return 1;
  case artifact::ElementType::bf16:
  case artifact::ElementType::f16:
    return 2;
  }
  return 0;
}

static Status reject(const std::string &origin, const std::string &message) {
  return Status(Code::inputRejected,
                origin + ": " + message + "; compile again with this kiln");
}

Expected<Artifact> Artifact::load(const std::string &path,
                                  const std::string &name) {
  Expected<Container> container =
      Container::open(path, name.empty() ? path : name);
  if (!container.ok())
    return container.status();
  return fromContainer(std::move(*container));
}

Expected<Artifact> Artifact::fromContainer(Container container) {
  Artifact artifact(std::move(container));
  std::span<const std::byte> bytes = artifact.container_.find(indexSectionName);
  if (!bytes.data())
    return reject(artifact.origin(), "has no section 'index'");
  // A step of a large model has about 1e5 commands of a few tables each; depth
  // 16 is above what the schema can nest.
  constexpr flatbuffers::uoffset_t maximumTables = 10'000'000;
  const auto *data = reinterpret_cast<const uint8_t *>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), /*_max_depth=*/16,
                                 maximumTables);
  if (!artifact::VerifyIndexBuffer(verifier))
    return reject(artifact.origin(), "index is not a valid flatbuffer");
  artifact.index_ = artifact::GetIndex(data);
  if (Status status = checkMeaning(*artifact.index_); !status.ok())
    return reject(artifact.origin(), status.message());
  for (const artifact::Target *target : *artifact.index_->targets())
    for (const flatbuffers::String *section : *target->sections())
      if (!artifact.section(section->string_view()).data())
        return reject(artifact.origin(),
                      "has no section '" + section->str() + "'");
  return artifact;
}

const artifact::Target *Artifact::findTarget(std::string_view backend) const {
  for (const artifact::Target *target : *index_->targets())
    if (target->backend()->string_view() == backend)
      return target;
  return nullptr;
}

std::map<std::string, std::string> Artifact::inputFiles() const {
  std::map<std::string, std::string> files;
  auto add = [&](const char *key, const flatbuffers::String *path) {
    if (path && path->size() != 0)
      files[key] = path->str();
  };
  if (const artifact::Data *data = settings().data()) {
    add("data.path", data->path());
    add("data.labels", data->labels_path());
    add("data.vocabulary", data->vocabulary_path());
  }
  if (const artifact::Evaluation *evaluation = settings().evaluation()) {
    add("evaluation.path", evaluation->path());
    add("evaluation.labels", evaluation->labels_path());
  }
  if (const artifact::Training *training = settings().training())
    add("training.init", training->init());
  return files;
}

const artifact::Program *Artifact::findProgram(std::string_view name) const {
  for (const artifact::Program *program : *index_->images()->Get(0)->programs())
    if (program->name()->string_view() == name)
      return program;
  return nullptr;
}

std::string nameOf(const artifact::Command &command,
                   const artifact::Index &index) {
  if (command.label() && command.label()->size() != 0)
    return command.label()->str();
  if (const artifact::Launch *launch = command.action_as_Launch())
    return index.kernels()->Get(launch->kernel())->name()->str();
  return artifact::EnumNameAction(command.action_type());
}

std::string describe(const artifact::Command &command,
                     const artifact::Index &index) {
  std::string name = nameOf(command, index);
  if (command.origin() && command.origin()->size() != 0)
    name += " (" + command.origin()->str() + ")";
  return name;
}

std::string nameCollective(const artifact::Phase &phase, uint32_t number,
                           const artifact::Index &index) {
  uint32_t before = 0; // Collectives earlier in the phase.
  for (uint32_t i = 0; i < number; ++i)
    before += phase.commands()->Get(i)->action_as_Collective() != nullptr;
  return nameOf(*phase.commands()->Get(number), index) + " (" +
         phase.name()->str() + " " + std::to_string(before + 1) + ")";
}

const artifact::Variable *Artifact::findVariable(std::string_view name) const {
  for (const artifact::Variable *variable :
       *index_->images()->Get(0)->variables())
    if (variable->name()->string_view() == name)
      return variable;
  return nullptr;
}

} // namespace kiln
