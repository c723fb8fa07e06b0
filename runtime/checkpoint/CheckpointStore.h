// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_CHECKPOINTSTORE_H
#define KILN_RUNTIME_CHECKPOINT_CHECKPOINTSTORE_H

#include "runtime/Warn.h"
#include "runtime/checkpoint/Checkpoint.h"

#include <optional>

namespace kiln {

/// The checkpoints of one run, in one folder. One process writes to it at a
/// time.
class CheckpointStore {
public:
  struct Entry {
    uint64_t step;
    std::string path;
  };
  using Entries = std::vector<Entry>;

  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}
  /// Of a run's folder, or of the folder of checkpoints inside.
  static CheckpointStore ofRun(const std::string &path);

  const std::string &folder() const { return folder_; }

  std::string pathOf(uint64_t step) const;
  /// By step, the oldest first. Nothing if there is no such folder, `io` if it
  /// cannot be read.
  Expected<Entries> list() const;
  /// Those that `setAsideAfter` has renamed, likewise.
  Expected<Entries> listSetAside() const;

  /// The newest intact checkpoint; nothing if there is none. One warning for
  /// each damaged one that is passed over. `io` for one that cannot be read:
  /// it may be intact.
  Expected<std::optional<Checkpoint>> openNewest(const Warn &warn) const;

  /// Removes the remains of an interrupted save. The caller must be the only
  /// one that saves here.
  void removeRemains() const;

  /// Renames checkpoints after `step`, which are of a course that the run has
  /// left, by a mark at the end of their names.
  Status setAsideAfter(uint64_t step, const std::string &mark) const;

  /// Saves a checkpoint, then removes all but the `keep` newest, and of them
  /// only files that Kiln writes. On a failure all older ones are untouched,
  /// and nothing is left of the new one. `warn` tells what does not matter to
  /// the checkpoint.
  Status save(const Manifest &manifest, std::vector<TensorSource> weights,
              std::vector<TensorSource> others, uint64_t keep, const Warn &warn,
              const std::string &vocabulary = "") const;

private:
  template <typename Accept> Expected<Entries> list(Accept accept) const;
  Status replace(const std::string &temporary, const std::string &path,
                 const Warn &warn) const;

  std::string folder_;
};

/// Whether a path is the folder of a checkpoint.
bool isCheckpoint(const std::string &path);

/// Why a path stands for no checkpoint, and what would make one.
Status failWithoutCheckpoint(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_CHECKPOINTSTORE_H
