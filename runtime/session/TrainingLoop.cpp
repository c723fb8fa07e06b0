// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/TrainingLoop.h"
#include "runtime/QuoteForShell.h"
#include "runtime/checkpoint/OutputFile.h"
#include "runtime/collective/Roster.h"
#include "runtime/data/Fingerprint.h"
#include "runtime/metrics/DropNanSign.h"
#include "runtime/metrics/TrainLog.h"
#include "runtime/session/SignalWatch.h"
#include "runtime/session/Signals.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace kiln {

namespace {

double secondsBetween(std::chrono::steady_clock::time_point begin,
                      std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Samples per second; 0 before the clock has moved.
double rate(uint64_t samples, double seconds) {
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

} // namespace

TrainingLoop::TrainingLoop(Session &session, const TrainOptions &options,
                           TrainReport &report)
    : session_(session), options_(options), report_(report),
      log_(options.logFile, options.warn), record_(session, options, log_),
      progress_(options.progressFile) {
  report_ = {};
}

TrainingLoop::~TrainingLoop() {
  if (lossesFile_ >= 0)
    ::close(lossesFile_);
}

Status TrainingLoop::prepare() {
  settings_ = session_.settings().training();
  if (!settings_ || settings_->global_batch() == 0)
    return Status(Code::inputRejected,
                  session_.artifact().origin() +
                      ": holds no training settings, so it can be run but "
                      "not trained");
  std::optional<size_t> number = session_.findProgram("train");
  if (!number)
    return Status(Code::inputRejected,
                  session_.artifact().origin() + ": has no program 'train'");
  number_ = *number;
  program_ = session_.devices_[0]->image().programs()->Get(
      static_cast<uint32_t>(number_));
  logEvery_ = options_.logEvery.value_or(settings_->log_every());
  for (Status (TrainingLoop::*part)() :
       {&TrainingLoop::findOutputs, &TrainingLoop::openData,
        &TrainingLoop::countSteps, &TrainingLoop::openEvaluation,
        &TrainingLoop::compareRuns, &TrainingLoop::beginRun,
        &TrainingLoop::checkOutputs, &TrainingLoop::settleRun,
        &TrainingLoop::openOutputs})
    if (Status status = session_.agree((this->*part)()); !status.ok())
      return status;
  return Status();
}

/// A file may lie in the run folder, which is a new one once an earlier run has
/// been set aside.
Status TrainingLoop::checkOutput(const std::string &name,
                                 const std::string &path) const {
  if (path.empty())
    return Status();
  if (!record_.isMoving(path))
    return kiln::checkOutput(name + " " + path, path);
  std::error_code error;
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return std::filesystem::equivalent(folder, options_.runFolder, error)
             ? Status()
             : Status(Code::usage,
                      name + " " + path +
                          ": its folder would be set aside with "
                          "the earlier run; give a file elsewhere");
}

Status TrainingLoop::checkTracedSteps() const {
  const StepRange &traced = session_.trace_->options().steps;
  bool isRunning = report_.steps < lastStep_;
  if (!isRunning || (traced.first <= lastStep_ && traced.last > report_.steps))
    return Status();
  return Status(Code::usage,
                "--trace-steps: found none of the steps of this run, which "
                "does " +
                    std::to_string(report_.steps + 1) + " to " +
                    std::to_string(lastStep_));
}

/// Before anything of an earlier run is touched: a file that cannot be written
/// must not cost it its name.
Status TrainingLoop::checkOutputs() {
  Status status = checkOutput("file of losses", options_.lossesPath);
  if (!status.ok() || !session_.trace_)
    return status;
  if (status = checkTracedSteps(); !status.ok())
    return status;
  const std::string &path = session_.trace_->options().path;
  return record_.isMoving(path) ? checkOutput("trace", path)
                                : session_.trace_->check();
}

/// After the run folder is settled, since they may lie there.
Status TrainingLoop::openOutputs() {
  if (Status status = session_.openTrace(); !status.ok())
    return status;
  if (options_.lossesPath.empty())
    return Status();
  lossesFile_ = ::open(options_.lossesPath.c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (lossesFile_ < 0)
    return Status(Code::io, "file of losses " + options_.lossesPath +
                                ": cannot open: " + std::strerror(errno));
  return Status();
}

Status TrainingLoop::findOutputs() {
  for (auto [name, member] :
       {std::pair("loss",
                  static_cast<std::optional<double> StepRecord::*>(nullptr)),
        std::pair("learning_rate", &StepRecord::learningRate),
        std::pair("grad_norm", &StepRecord::gradientNorm),
        std::pair("loss_scale", &StepRecord::lossScale),
        std::pair("skipped_steps", &StepRecord::skippedSteps)}) {
    const artifact::Output *found = Session::findOutput(*program_, name);
    if (found && !isScalar(*found))
      return Status(Code::inputRejected, session_.artifact().origin() +
                                             ": output '" + name +
                                             "' is not one f32 or f64");
    if (!member)
      loss_ = found;
    else if (found)
      reports_.push_back({found, member});
  }
  if (!loss_)
    return Status(Code::inputRejected,
                  session_.artifact().origin() + ": program '" +
                      program_->name()->str() + "' has no output 'loss'");
  return Status();
}

Status TrainingLoop::openData() {
  uint64_t batch = 0;
  shares_ = session_.findShares("train", batch);
  if (!session_.settings().data())
    return Status();
  Expected<std::unique_ptr<Dataset>> dataset = Dataset::open(
      *session_.settings().data(), session_.settings().evaluation(), seed(),
      [this](const std::string &message) { warnOnce(message); });
  if (!dataset.ok())
    return dataset.status();
  dataset_ = std::move(*dataset);
  Status status;
  for (const FedDevice &share : shares_)
    if (status.ok())
      status = checkInputs(*share.program, dataset_.get(), share.samples);
  if (status.ok() && batch != 0 && batch != settings_->global_batch())
    status = Status(Code::inputRejected,
                    "the replicas take " + std::to_string(batch) +
                        " samples together, the global batch has " +
                        std::to_string(settings_->global_batch()));
  if (!status.ok())
    return Status(status.code(),
                  session_.artifact().origin() + ": " + status.message());
  return Status();
}

Status TrainingLoop::countSteps() {
  uint64_t batch = settings_->global_batch();
  uint64_t steps =
      options_.steps.value_or(options_.epochs ? 0 : settings_->steps());
  uint64_t epochs = options_.epochs.value_or(settings_->epochs());
  if (steps == 0 && epochs != 0 && dataset_) {
    // The last batch may reach into one more epoch: no sample is left out.
    uint64_t samples = 0;
    if (__builtin_mul_overflow(epochs, dataset_->samples(), &samples) ||
        __builtin_add_overflow(samples, batch - 1, &samples))
      return Status(Code::usage, std::to_string(epochs) +
                                     " epochs are more than can be counted");
    steps = samples / batch;
  }
  if (steps == 0)
    return Status(Code::usage, epochs != 0
                                   ? "epochs need data to count, give steps"
                                   : "neither steps nor epochs are given");
  lastStep_ = steps;
  return Status();
}

Status TrainingLoop::openEvaluation() {
  Expected<std::unique_ptr<Evaluator>> evaluator =
      Evaluator::open(session_, seed(), [this](const std::string &message) {
        warnOnce(message);
      });
  if (!evaluator.ok())
    return evaluator.status();
  evaluator_ = std::move(*evaluator);
  return Status();
}

/// Compares settings that the artifact does not hold: processes on different
/// courses would block each other. In order of cause, so that a difference is
/// reported before its consequences.
Status TrainingLoop::compareRuns() {
  const std::tuple<const char *, std::string, Code> facts[] = {
      {"number of samples", std::to_string(dataset_ ? dataset_->samples() : 0),
       Code::inputRejected},
      {"number of samples held out",
       std::to_string(evaluator_ ? evaluator_->samples() : 0),
       Code::inputRejected},
      {"seed", std::to_string(seed()), Code::usage},
      {"number of steps", std::to_string(lastStep_), Code::usage},
      {"--resume", options_.resume, Code::usage}};
  for (const auto &[name, fact, code] : facts)
    if (Status status = requireSame(session_.world(), name, fact, code);
        !status.ok())
      return status;
  return compareFiles();
}

/// On several machines the same path may be another file, and so it may be when
/// a run goes on.
Status TrainingLoop::compareFiles() {
  for (const auto &[key, path] : session_.artifact().inputFiles()) {
    // Only samples to train on matter to a run that goes on.
    bool isTrainedOn = key == "data.path" || key == "data.labels";
    if (!isTrainedOn && !session_.world())
      continue;
    std::string fingerprint = fingerprintFile(path);
    if (Status status = requireSame(session_.world(), "file " + path,
                                    fingerprint, Code::inputRejected);
        !status.ok())
      return status;
    if (isTrainedOn)
      contents_[key] = fingerprint;
  }
  return Status();
}

Status TrainingLoop::beginRun() {
  Manifest position;
  position.seed = seed();
  position.globalBatch = settings_->global_batch();
  if (dataset_) {
    position.samples = dataset_->samples();
    position.isShuffled = session_.settings().data()->shuffle();
    position.contents = contents_;
  }
  order_ = {position.samples, position.globalBatch, position.seed,
            position.isShuffled};
  std::string vocabulary(dataset_ ? dataset_->vocabulary() : "");
  if (Status status = record_.begin(position, std::move(vocabulary), lastStep_);
      !status.ok())
    return status;
  report_.steps = report_.firstStep = record_.firstStep();
  return Status();
}

Status TrainingLoop::settleRun() {
  if (Status status = record_.settle(); !status.ok())
    return status;
  if (report_.steps >= lastStep_)
    log_.write("Step " + std::to_string(report_.steps) + " of " +
               std::to_string(lastStep_) +
               " is done: nothing is left to do (--fresh starts afresh)\n");
  return Status();
}

uint64_t TrainingLoop::seed() const {
  return options_.seed.value_or(settings_->seed());
}

Status TrainingLoop::startFeeder() {
  if (!dataset_ || report_.steps >= lastStep_ || !session_.computes())
    return Status();
  Expected<std::unique_ptr<Feeder>> feeder =
      Feeder::start(*dataset_, order_, shares_, report_.steps);
  if (feeder.ok())
    feeder_ = std::move(*feeder);
  return feeder.status();
}

Status TrainingLoop::run() {
  SignalWatch watch;
  Roster::beginTraining();
  if (record_.savesCheckpoints() && !record_.isSaved(report_.steps))
    if (Status status = save(); !status.ok())
      return status;
  if (Status status = session_.agree(startFeeder()); !status.ok())
    return status;
  if (!dataset_)
    for (const FedDevice &share : shares_)
      if (Status status = writePositions(share); !status.ok())
        return status;
  start_ = lastLog_ = epochStart_ = Clock::now();
  lastLogStep_ = report_.steps;
  while (report_.steps < lastStep_) {
    if (Status status = feedStep(); !status.ok())
      return stopUnfed(status);
    if (signal_ != 0)
      break;
    if (Status status = runStep(); !status.ok())
      return status;
    if (Status status = checkFinite(); !status.ok())
      return status;
    if (Status status = endStep(); !status.ok())
      return stopUnfed(status);
    // The last step's checkpoint is saved at the end.
    if (report_.steps < lastStep_ && record_.isDue(report_.steps))
      if (Status status = save(); !status.ok())
        return status;
  }
  return finish();
}

/// Processes stop after the same step, whichever of them got a signal or cannot
/// be fed: the rest would block in their next collective.
Status TrainingLoop::feedStep() {
  stepStart_ = Clock::now();
  Status fed = feeder_ ? feeder_->next() : Status();
  int received = SignalWatch::received(),
      signal = received ? received : Roster::requestedStop();
  signal_ = static_cast<uint64_t>(signal);
  World *world = session_.world();
  if (!world)
    return fed;
  constexpr uint64_t isUnfed = uint64_t{1} << 32; // Above all signals.
  signal_ = world->maximum(fed.ok() ? signal_ : isUnfed);
  return signal_ == isUnfed ? session_.agree(fed) : Status();
}

Status TrainingLoop::runStep() {
  session_.beginStep(report_.steps + 1);
  if (Status status = session_.runProgram(number_); !status.ok())
    return status;
  Clock::time_point end = Clock::now();
  report_.seconds = secondsBetween(start_, end);
  if (Status status = readStep(secondsBetween(stepStart_, end)); !status.ok())
    return status;
  writeLoss();
  record_.add(step_);
  if (report_.steps == 1 || (logEvery_ && report_.steps % logEvery_ == 0))
    logStep(end);
  progress_.show(report_.steps, lastStep_, report_.loss);
  return Status();
}

/// Nothing is written after a failure, and no half line is left: the file holds
/// the first steps.
void TrainingLoop::writeLoss() {
  if (lossesFile_ < 0 || !areLossesWritten_)
    return;
  std::string_view line = formatLossLine(line_, report_.steps, report_.loss);
  areLossesWritten_ = writeText(lossesFile_, line);
  if (areLossesWritten_)
    lossesBytes_ += line.size();
  else
    (void)!::ftruncate(lossesFile_, static_cast<off_t>(lossesBytes_));
}

/// Reads the results of the step, which took `seconds`.
Status TrainingLoop::readStep(double seconds) {
  if (Status status = session_.readScalar(*loss_, report_.loss); !status.ok())
    return status;
  report_.loss = dropNanSign(report_.loss);
  ++report_.steps;
  report_.samples += settings_->global_batch();
  step_ = {};
  step_.step = report_.steps;
  step_.loss = report_.loss;
  step_.samplesPerSecond = rate(settings_->global_batch(), seconds);
  for (auto [output, member] : reports_)
    if (Status status = session_.readScalar(*output, (step_.*member).emplace());
        !status.ok())
      return status;
    else
      step_.*member = dropNanSign(*(step_.*member));
  return Status();
}

/// A step that is not finite has updated nothing. While there is a loss scale
/// that falls, the run goes on with a smaller one; it falls no further than 1.
Status TrainingLoop::checkFinite() {
  for (auto [name, value] :
       {std::pair("loss", step_.loss),
        std::pair("norm of the gradients", step_.gradientNorm.value_or(0))}) {
    if (std::isfinite(value))
      continue;
    std::string found = std::string(name) + " is " + std::to_string(value) +
                        " at step " + std::to_string(report_.steps);
    if (!step_.lossScale)
      return stopNotFinite(found);
    if (*step_.lossScale <= 1)
      return stopNotFinite(found + ", also with a loss scale of 1");
    ++report_.skipped;
    char scale[32];
    std::snprintf(scale, sizeof(scale), "%g", *step_.lossScale);
    log("Step " + std::to_string(report_.steps) + " is skipped: " + name +
        " is not finite with a loss scale of " + scale + "\n");
    return Status();
  }
  return Status();
}

/// Runs before a checkpoint of this step is saved: its evaluation must be in
/// the metrics, or a run that goes on from there would miss it.
Status TrainingLoop::endStep() {
  bool isLast = report_.steps == lastStep_;
  uint64_t samples = report_.steps * order_.globalBatch;
  bool endsEpoch =
      dataset_ && samples / order_.samples !=
                      (samples - order_.globalBatch) / order_.samples;
  if (evaluator_) {
    uint64_t every = evaluator_->every();
    if (isLast || (every ? report_.steps % every == 0 : endsEpoch))
      if (Status status = evaluate(); !status.ok())
        return status;
  }
  if (!endsEpoch)
    return Status();
  Clock::time_point now = Clock::now();
  // Only an accuracy from this epoch's end is printed.
  bool isMeasured = evaluation_ && evaluation_->step == report_.steps;
  log(formatEpochLine(line_, device(), samples / order_.samples,
                      secondsBetween(epochStart_, now),
                      isMeasured ? evaluation_->accuracy : std::nullopt));
  epochStart_ = now;
  return Status();
}

Status TrainingLoop::evaluate() {
  Expected<EvaluationRecord> evaluation = evaluator_->run(report_.steps);
  if (!evaluation.ok())
    return evaluation.status();
  evaluation_ = *evaluation;
  record_.add(*evaluation_);
  log(formatEvaluationLine(line_, device(), *evaluation_));
  return Status();
}

DeviceName TrainingLoop::device() const {
  return {session_.artifact().deviceKind(), session_.index().devices()->size()};
}

void TrainingLoop::log(std::string_view line) {
  progress_.clear();
  log_.write(line);
}

/// The message with the name of a report on the last step.
Status TrainingLoop::stopNotFinite(const std::string &message) {
  progress_.clear();
  if (report_.steps == report_.firstStep)
    return Status(Code::notFinite, message);
  std::vector<uint64_t> samples;
  if (dataset_)
    for (uint64_t i = 0; i < order_.globalBatch; ++i)
      samples.push_back(order_.at(report_.steps - 1, i).index);
  std::string path = record_.reportFailure(step_, samples);
  return Status(Code::notFinite,
                message + (path.empty() ? "" : "; its samples are in " + path));
}

/// The data cannot be trained on any more. The steps so far were fed from the
/// files as they were: their state is worth keeping.
Status TrainingLoop::stopUnfed(const Status &fault) {
  bool isOfData =
      fault.code() == Code::inputRejected || fault.code() == Code::io;
  if (!isOfData || report_.steps == report_.firstStep)
    return fault;
  progress_.clear();
  if (!record_.isSaved(report_.steps) && record_.savesLastState())
    if (Status status = save(); !status.ok())
      return Status(fault.code(), fault.message() + "; " + status.message());
  std::string text = fault.message() + "; the state after step " +
                     std::to_string(report_.steps);
  std::string path = quoteForShell(record_.savedPath());
  if (record_.isSaved(report_.steps))
    text += " is in " + path + ": --resume=" + path +
            " goes on from it with the file as it was, training.init=" + path +
            "/" + modelFileName + " takes its weights to other data";
  else
    text += " is lost, because it was not saved";
  return Status(fault.code(), text);
}

/// The same file may be open twice, and in several processes.
void TrainingLoop::warnOnce(const std::string &message) {
  if (session_.rank() != 0 || !warned_.insert(message).second)
    return;
  progress_.clear();
  options_.warn(message);
}

/// Loss and gradients were finite, but the update need not be.
Status TrainingLoop::save() { return explain(record_.save(report_.steps)); }

Status TrainingLoop::explain(const Status &status) {
  return status.ok() ? status
                     : stopNotFinite("the state after step " +
                                     std::to_string(report_.steps) +
                                     " is not finite: " + status.message());
}

Status TrainingLoop::finish() {
  progress_.clear();
  if (!record_.isSaved(report_.steps) && record_.savesLastState()) {
    if (Status status = save(); !status.ok())
      return status;
    if (std::string path = record_.savedPath();
        record_.isSaved(report_.steps) && !path.empty())
      log_.write("The state after step " + std::to_string(report_.steps) +
                 " is in " + path + "\n");
  } else if (!record_.savesLastState() && session_.computes() &&
             report_.steps != report_.firstStep) {
    if (Status status = explain(record_.check()); !status.ok())
      return status;
  }
  bool isSaved = record_.isSaved(report_.steps);
  Status traced = session_.agree(session_.finishTrace());
  if (report_.steps < lastStep_) {
    std::string message = "stopped by " +
                          describeSignal(static_cast<int>(signal_)) +
                          " after step " + std::to_string(report_.steps) +
                          " of " + std::to_string(lastStep_);
    if (!traced.ok() && session_.rank() == 0)
      options_.warn(traced.message());
    if (!isSaved)
      return Status::interrupted(static_cast<int>(signal_), message);
    bool isFound = options_.resume == "auto" ||
                   (options_.resume.empty() && record_.savesCheckpoints());
    return Status(Code::stopped,
                  message + "; a checkpoint is saved, the same command " +
                      (isFound ? ""
                               : "with --resume=" +
                                     quoteForShell(options_.runFolder) + " ") +
                      "goes on from it");
  }
  if (record_.savesLastState() && !isSaved)
    return Status(Code::io, "the state after the last step was not saved");
  if (lossesFile_ >= 0)
    areLossesWritten_ &= ::close(std::exchange(lossesFile_, -1)) == 0;
  if (!areLossesWritten_)
    return Status(Code::io, "file of losses " + options_.lossesPath +
                                ": cannot write; losses are missing there");
  return traced;
}

void TrainingLoop::logStep(Clock::time_point now) {
  uint64_t samples = (report_.steps - lastLogStep_) * settings_->global_batch();
  log(formatTrainLine(line_, {device(), report_.steps, report_.loss,
                              rate(samples, secondsBetween(lastLog_, now)),
                              rate(report_.samples, report_.seconds)}));
  lastLog_ = now;
  lastLogStep_ = report_.steps;
}

} // namespace kiln
