// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_RUNRECORD_H
#define KILN_RUNTIME_SESSION_RUNRECORD_H

#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/metrics/MetricsFile.h"
#include "runtime/session/RunFolder.h"
#include "runtime/session/Session.h"

#include <array>

namespace kiln {

/// Everything that a run leaves on the disk: metrics, config, checkpoints,
/// reports; and how a run begins from an earlier one's. No failure here after
/// the start stops the training.
class RunRecord {
public:
  RunRecord(Session &session, const TrainOptions &options);

  /// Decides where the run begins, and gives all variables their values there.
  /// `position` has seed, batch and samples of this run; its step becomes the
  /// number of steps done. The vocabulary is the data's.
  Status begin(Manifest position, std::string vocabulary);

  /// Steps done by the checkpoint from which the run goes on.
  uint64_t firstStep() const { return position_.step; }

  /// Whether a checkpoint is due after this step.
  bool isDue(uint64_t step) const;
  /// Saves all variables; false, with a warning, if that fails. The first
  /// process writes the shards of all.
  bool save(uint64_t step);
  bool savesCheckpoints() const { return savesCheckpoints_; }
  /// Whether the last state saved is the one after this step.
  bool isSaved(uint64_t step) const { return savedStep_ == step; }

  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);

  /// Writes report-step-N.json and returns its path; empty if there is none.
  std::string reportFailure(const StepRecord &record,
                            const std::vector<uint64_t> &samples);

private:
  Status openFolder();
  Expected<std::optional<Checkpoint>> findCheckpoint();
  Expected<std::optional<Checkpoint>> agreeOnCheckpoint();
  Status resume(const Checkpoint &checkpoint);
  Status startFresh();
  Status takeInitialWeights(const std::string &path);
  Status settleFolder(const std::optional<Checkpoint> &from);
  bool write(uint64_t step);
  void say(const std::string &line) const;
  void warn(const std::string &message) const { options_.warn(message); }
  void append(std::string_view line);

  Session &session_;
  const TrainOptions &options_;
  const artifact::CheckpointPolicy *policy_;
  std::optional<RunFolder> folder_;
  std::optional<CheckpointStore> store_;
  bool savesCheckpoints_ = false;
  MetricsFile metrics_;
  Manifest position_; // A manifest without files and step.
  std::string vocabulary_;
  std::optional<uint64_t> savedStep_;
  std::array<char, 512> line_;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_RUNRECORD_H
