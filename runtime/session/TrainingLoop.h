// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_TRAININGLOOP_H
#define KILN_RUNTIME_SESSION_TRAININGLOOP_H

#include "runtime/data/Feeder.h"
#include "runtime/metrics/ProgressBar.h"
#include "runtime/metrics/TrainLog.h"
#include "runtime/session/Evaluator.h"
#include "runtime/session/RunRecord.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace kiln {

/// The steps of one call of Session::train. `prepare` opens and checks
/// everything; after it `run` allocates nothing within a step, only to save a
/// checkpoint between two.
class TrainingLoop {
public:
  TrainingLoop(Session &session, const TrainOptions &options,
               TrainReport &report);
  ~TrainingLoop();
  TrainingLoop(const TrainingLoop &) = delete;

  Status prepare();
  Status run();

private:
  using Clock = std::chrono::steady_clock;

  Status findOutputs();
  Status openData();
  Status countSteps();
  uint64_t seed() const;
  Status openEvaluation();
  Status compareRuns();
  Status compareFiles();
  Status beginRun();
  Status checkOutputs();
  Status checkOutput(const std::string &name, const std::string &path) const;
  Status checkTracedSteps() const;
  Status settleRun();
  Status openOutputs();
  Status startFeeder();
  Status feedStep();
  Status runStep();
  Status readStep(double seconds);
  Status checkFinite();
  Status endStep();
  Status evaluate();
  DeviceName device() const;
  void log(std::string_view line);
  void logStep(Clock::time_point now);
  Status stopNotFinite(const std::string &message);
  Status stopUnfed(const Status &fault);
  void writeLoss();
  Status save();
  Status explain(const Status &status);
  void warnOnce(const std::string &message);
  Status finish();

  Session &session_;
  const TrainOptions &options_;
  TrainReport &report_;

  const artifact::Training *settings_ = nullptr;
  const artifact::Program *program_ = nullptr;
  size_t number_ = 0; // Of the program.
  std::vector<FedDevice> shares_;
  const artifact::Output *loss_ = nullptr;
  /// Outputs that a program may have, and where their values go.
  std::vector<
      std::pair<const artifact::Output *, std::optional<double> StepRecord::*>>
      reports_;
  std::unique_ptr<Dataset> dataset_;
  std::map<std::string, std::string> contents_; // Fingerprints of data files.
  SampleOrder order_{};
  std::unique_ptr<Feeder> feeder_;
  TrainLog log_;
  RunRecord record_;
  StepRecord step_{};                          // The last step's results.
  std::unique_ptr<Evaluator> evaluator_;       // Null for no evaluation.
  std::optional<EvaluationRecord> evaluation_; // The last one.
  ProgressBar progress_;
  int lossesFile_ = -1;
  uint64_t lossesBytes_ = 0; // Of complete lines.
  bool areLossesWritten_ = true;
  std::set<std::string> warned_;
  uint64_t lastStep_ = 0;
  uint64_t signal_ = 0; // That stops the run, on all processes; 0 for none.
  uint64_t logEvery_ = 0;

  std::array<char, 256> line_;
  Clock::time_point start_, lastLog_, epochStart_, stepStart_;
  uint64_t lastLogStep_ = 0;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_TRAININGLOOP_H
