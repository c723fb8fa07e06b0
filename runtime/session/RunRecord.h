// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_RUNRECORD_H
#define KILN_RUNTIME_SESSION_RUNRECORD_H

#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/metrics/TrainLog.h"
#include "runtime/session/RunFolder.h"
#include "runtime/session/Session.h"

#include <array>

namespace kiln {

/// Everything that a run leaves on the disk: metrics, config, checkpoints,
/// reports; and how a run begins from an earlier one's. No failure here after
/// the start stops the training.
class RunRecord {
public:
  RunRecord(Session &session, const TrainOptions &options, TrainLog &log);

  /// Decides where the run begins, and gives all variables their values there.
  /// `position` has seed, batch and samples of this run, which ends after
  /// `lastStep`. The vocabulary is the data's.
  Status begin(Manifest position, std::string vocabulary, uint64_t lastStep);

  /// Steps done by the checkpoint from which the run goes on.
  uint64_t firstStep() const { return position_.step; }

  /// Whether a checkpoint is due after this step.
  bool isDue(uint64_t step) const;
  /// Saves all variables: the first process writes the shards of all. Fails
  /// with `notFinite` if a variable is not, and earlier checkpoints stay; any
  /// other failure is a warning.
  Status save(uint64_t step);
  /// Whether checkpoints are saved on the way, and begun from unasked.
  bool savesCheckpoints() const { return saves_ == Saves::checkpoints; }
  bool savesLastState() const { return saves_ != Saves::nothing; }
  /// Whether the last state saved is the one after this step.
  bool isSaved(uint64_t step) const { return savedStep_ == step; }
  /// Tells where the last state saved is.
  void tellSaved() const;

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
  Status failFinished(const Checkpoint &checkpoint,
                      const std::string &changes) const;
  Status startFresh();
  Status takeInitialWeights(const std::string &path);
  Status settleFolder(const std::optional<Checkpoint> &from);
  Status write(uint64_t step);
  void say(const std::string &line) const { log_.write(line + "\n"); }
  void warn(const std::string &message) const { options_.warn(message); }
  void append(std::string_view line);

  Session &session_;
  const TrainOptions &options_;
  TrainLog &log_;
  const artifact::CheckpointPolicy *policy_;
  std::optional<RunFolder> folder_;
  std::optional<CheckpointStore> store_;
  Saves saves_ = Saves::nothing;
  MetricsFile metrics_;
  Manifest position_; // A manifest without files.
  std::string vocabulary_;
  uint64_t lastStep_ = 0;
  std::optional<uint64_t> savedStep_;
  std::array<char, 512> line_;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_RUNRECORD_H
