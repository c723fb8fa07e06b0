// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_CHECKPOINTSTORE_H
#define KILN_RUNTIME_CHECKPOINT_CHECKPOINTSTORE_H

#include "runtime/checkpoint/Checkpoint.h"

#include <optional>

namespace kiln {

using Warn = std::function<void(const std::string &)>;

/// The checkpoints of one run, in one folder. One process writes to it at a
/// time.
class CheckpointStore {
public:
  struct Entry {
    uint64_t step;
    std::string path;
  };

  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}
  /// Of a run's folder, or of the folder of checkpoints inside.
  static CheckpointStore ofRun(const std::string &path);

  const std::string &folder() const { return folder_; }

  std::string pathOf(uint64_t step) const;
  /// By step, the oldest first. Nothing if there is no such folder.
  std::vector<Entry> list() const;

  /// The newest intact checkpoint; nothing if there is none. One warning for
  /// each damaged one that is passed over.
  std::optional<Checkpoint> openNewest(const Warn &warn) const;

  /// Removes the remains of an interrupted save.
  void removeRemains() const;

  /// Renames checkpoints after `step`: they are of a course that the run has
  /// left. Returns how many.
  size_t setAsideAfter(uint64_t step) const;

  /// Saves a checkpoint, then removes all but the `keep` newest. On a failure
  /// all older ones are untouched, and nothing is left of the new one.
  Status save(const Manifest &manifest, std::vector<TensorSource> weights,
              std::vector<TensorSource> others, uint64_t keep,
              const std::string &vocabulary = "") const;

private:
  std::string folder_;
};

/// Whether a path is the folder of a checkpoint.
bool isCheckpoint(const std::string &path);

/// Why a path stands for no checkpoint, and what would make one.
Status failWithoutCheckpoint(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_CHECKPOINTSTORE_H
