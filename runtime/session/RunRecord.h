// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_RUNRECORD_H
#define KILN_RUNTIME_SESSION_RUNRECORD_H

#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/metrics/TrainLog.h"
#include "runtime/session/RunFolder.h"
#include "runtime/session/Session.h"

#include <array>
#include <set>

namespace kiln {

/// Everything that a run leaves on the disk: metrics, config, checkpoints,
/// reports; and how a run begins from an earlier one's. No failure here after
/// the start stops the training.
class RunRecord {
public:
  RunRecord(Session &session, const TrainOptions &options, TrainLog &log);

  /// Decides where the run begins, and gives all variables their values there.
  /// `position` has seed, batch and samples of this run, which ends after
  /// `lastStep`. The vocabulary is the data's. An earlier run is as it was:
  /// the run may still fail.
  Status begin(Manifest position, std::string vocabulary, uint64_t lastStep);

  /// Whether `settle` will give another name to a file at this path.
  bool isMoving(const std::string &path) const {
    return !moving_.empty() && isInside(path, moving_);
  }
  /// Sets an earlier run aside, or what of it this run does not go on from,
  /// and begins to write.
  Status settle();

  /// Steps done by the checkpoint from which the run goes on.
  uint64_t firstStep() const { return position_.step; }

  /// Whether a checkpoint is due after this step.
  bool isDue(uint64_t step) const;
  /// Saves all variables: the first process writes the shards of all. Fails
  /// with `notFinite` if a variable is not, and earlier checkpoints stay; any
  /// other failure is a warning.
  Status save(uint64_t step);
  /// Fails with `notFinite` if a variable is not, as `save` does.
  Status check();
  /// Whether checkpoints are saved on the way, and begun from unasked.
  bool savesCheckpoints() const { return saves_ == Saves::checkpoints; }
  bool savesLastState() const { return saves_ != Saves::nothing; }
  /// Whether the last state saved is the one after this step.
  bool isSaved(uint64_t step) const { return savedStep_ == step; }
  /// Where the last state saved is; empty if there is none.
  std::string savedPath() const;

  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);

  /// Writes report-step-N.json and returns its path; empty if there is none.
  std::string reportFailure(const StepRecord &record,
                            const std::vector<uint64_t> &samples);

private:
  enum class Saves : char { nothing = '0', lastState, checkpoints };

  Status openFolder();
  Expected<Checkpoint> openNamed(const std::string &path) const;
  Expected<std::optional<Checkpoint>> findCheckpoint();
  Expected<std::optional<Checkpoint>> agreeOnCheckpoint();
  Status resume(const Checkpoint &checkpoint);
  Status failToRestore(const Checkpoint &checkpoint, const Status &fault,
                       const std::string &changes) const;
  Status failFinished(const Checkpoint &checkpoint,
                      const std::string &changes) const;
  Status startFresh();
  Status takeInitialWeights(const std::string &path);
  void keepVocabulary(const std::string &weights, const std::string &hash);
  Status checkFolder(const std::optional<Checkpoint> &from);
  Status settleFolder();
  Status setCourseAside();
  Status checkRoom() const;
  Status openFiles();
  Status write(uint64_t step);
  /// Whether a state is still to be saved.
  bool willSave() const {
    return savesLastState() && position_.step < lastStep_;
  }
  void say(const std::string &line) const { log_.write(line + "\n"); }
  void warn(const std::string &message) const { options_.warn(message); }
  void warnOnce(const std::string &message);
  void append(std::string_view line);

  Session &session_;
  const TrainOptions &options_;
  TrainLog &log_;
  const artifact::CheckpointPolicy *policy_;
  std::optional<RunFolder> folder_;
  std::optional<CheckpointStore> store_;
  Saves saves_ = Saves::nothing;
  bool isOwn_ = false; // The run goes on from a checkpoint of its own folder.
  bool hasChanged_ = false; // With another config.
  std::string moving_;      // The folder of an earlier run; empty for none.
  MetricsFile metrics_;
  Manifest position_; // A manifest without files.
  std::string vocabulary_;
  uint64_t lastStep_ = 0;
  std::optional<uint64_t> savedStep_;
  std::set<std::string> warned_;
  std::array<char, 512> line_;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_RUNRECORD_H
