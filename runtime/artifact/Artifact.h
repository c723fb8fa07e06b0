// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_ARTIFACT_ARTIFACT_H
#define KILN_RUNTIME_ARTIFACT_ARTIFACT_H

#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/Container.h"

#include <algorithm>
#include <map>
#include <string>

namespace kiln {

/// A compiled program whose bytes and meaning have been checked: every place is
/// in the arena, every index in range, names are unique. None of its code has
/// been executed.
class Artifact {
public:
  /// Messages call the file `name`, if that is not empty.
  static Expected<Artifact> load(const std::string &path,
                                 const std::string &name = "");
  static Expected<Artifact> fromContainer(Container container);

  const artifact::Index &index() const { return *index_; }
  const artifact::Settings &settings() const { return *index_->settings(); }
  /// The bytes of a section that a target names.
  std::span<const std::byte> section(std::string_view name) const {
    return container_.find(name);
  }
  /// The target of this backend, or null.
  const artifact::Target *findTarget(std::string_view backend) const;
  const std::vector<Section> &sections() const { return container_.sections(); }
  const std::string &origin() const { return container_.origin(); }

  /// The image of devices with one share of the batch. All images have the same
  /// variables and programs, in the same order.
  const artifact::Image &image(uint32_t number = 0) const {
    return *index_->images()->Get(number);
  }
  /// The program of the first image with this name, or null.
  const artifact::Program *findProgram(std::string_view name) const;
  /// The variable of the first image with this name, or null.
  const artifact::Variable *findVariable(std::string_view name) const;

  /// The image that a device of the mesh runs.
  const artifact::Image &imageOf(uint32_t device) const {
    return image(index_->devices()->Get(device)->image());
  }

  /// Paths of the files that a run reads, by their keys in the config.
  std::map<std::string, std::string> inputFiles() const;

  /// The kind of device that it was compiled for.
  std::string_view deviceKind() const {
    return index_->device()->string_view();
  }
  /// Workers of a device that scratch memory is planned for.
  unsigned plannedWorkers() const { return std::max(index_->threads(), 1u); }

private:
  explicit Artifact(Container container) : container_(std::move(container)) {}

  Container container_;
  const artifact::Index *index_ = nullptr;
};

/// Name of a command in profiles.
std::string nameOf(const artifact::Command &command,
                   const artifact::Index &index);
/// The same with the part of the model that it computes, for traces and
/// messages.
std::string describe(const artifact::Command &command,
                     const artifact::Index &index);

/// Name of a collective in messages and traces, unique in the program; `number`
/// is its index among the phase's commands.
std::string nameCollective(const artifact::Phase &phase, uint32_t number,
                           const artifact::Index &index);

/// Bytes of one element; 0 for a value that the schema does not know.
uint64_t elementBytes(artifact::ElementType type);

} // namespace kiln

#endif // KILN_RUNTIME_ARTIFACT_ARTIFACT_H
