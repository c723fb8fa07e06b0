// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/TrainingLoop.h"
#include "runtime/metrics/TrainLog.h"

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace kiln {

namespace {

volatile std::sig_atomic_t receivedSignal = 0;

void noteSignal(int signal) {
  receivedSignal = signal;
  int saved = errno;
  (void)writeText(2, "kiln: stopping after this step; signal again to stop "
                     "at once\n");
  errno = saved;
}

/// While it lives the first SIGINT or SIGTERM is noted, and a second one of the
/// same kind ends the process.
class SignalWatch {
public:
  SignalWatch() {
    receivedSignal = 0;
    struct sigaction action = {};
    action.sa_handler = noteSignal;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~SignalWatch() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
  }
  SignalWatch(const SignalWatch &) = delete;

private:
  struct sigaction interrupt_, terminate_;
};

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
    : session_(session), options_(options), report_(report) {
  report_ = {};
}

TrainingLoop::~TrainingLoop() {
  if (lossesFile_ >= 0)
    ::close(lossesFile_);
}

Status TrainingLoop::prepare() {
  settings_ = session_.index().training();
  if (!settings_ || settings_->global_batch() == 0)
    return Status(Code::inputRejected,
                  session_.artifact().origin() +
                      ": holds no training settings, so it can be run but "
                      "not trained");
  uint32_t devices = session_.index().device_programs()->size();
  if (devices != 1)
    return Status(Code::inputRejected,
                  session_.artifact().origin() + ": compiled for " +
                      std::to_string(devices) +
                      " devices, this kiln trains on 1; compile again with "
                      "devices.count=1");
  uint32_t number = session_.index().device_programs()->Get(0);
  program_ = session_.index().programs()->Get(number);
  executor_ = &session_.executors_[number];
  logEvery_ = options_.logEvery.value_or(settings_->log_every());
  if (Status status = findLoss(); !status.ok())
    return status;
  if (Status status = openData(); !status.ok())
    return status;
  if (Status status = countSteps(); !status.ok())
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

Status TrainingLoop::findLoss() {
  if (program_->outputs())
    for (const artifact::Output *output : *program_->outputs())
      if (output->name()->string_view() == "loss")
        loss_ = output;
  if (!loss_)
    return Status(Code::inputRejected,
                  session_.artifact().origin() + ": program '" +
                      program_->name()->str() + "' has no output 'loss'");
  bool isDouble = loss_->element_type() == artifact::ElementType::f64;
  bool isFloat = loss_->element_type() == artifact::ElementType::f32;
  if (!(isDouble || isFloat) || loss_->bytes() != (isDouble ? 8u : 4u))
    return Status(Code::inputRejected,
                  session_.artifact().origin() +
                      ": output 'loss' is not one f32 or f64");
  return Status();
}

Status TrainingLoop::openData() {
  if (!session_.index().data())
    return Status();
  Expected<std::unique_ptr<Dataset>> dataset =
      Dataset::open(*session_.index().data(), seed());
  if (!dataset.ok())
    return dataset.status();
  dataset_ = std::move(*dataset);
  Status status =
      checkInputs(*program_, dataset_.get(), settings_->global_batch());
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

Status TrainingLoop::run() {
  if (dataset_) {
    SampleOrder order{dataset_->samples(), settings_->global_batch(), seed(),
                      session_.index().data()->shuffle()};
    feeder_ =
        std::make_unique<Feeder>(*dataset_, order, *program_,
                                 session_.arena_->base(), options_.firstStep);
  } else {
    writePositions(*program_, session_.arena_->base());
  }
  SignalWatch watch;
  start_ = lastLog_ = Clock::now();
  lastLogStep_ = report_.steps = options_.firstStep;
  while (report_.steps < lastStep_ && receivedSignal == 0) {
    if (feeder_)
      feeder_->next();
    executor_->run(*session_.team_);
    report_.loss = readLoss();
    ++report_.steps;
    report_.samples += settings_->global_batch();
    Clock::time_point now = Clock::now();
    report_.seconds = secondsBetween(start_, now);
    if (lossesFile_ >= 0)
      (void)writeText(lossesFile_,
                      formatLossLine(line_, report_.steps, report_.loss));
    if (report_.steps == 1 || (logEvery_ && report_.steps % logEvery_ == 0))
      logStep(now);
    if (!std::isfinite(report_.loss))
      return Status(Code::notFinite, "loss is " + std::to_string(report_.loss) +
                                         " at step " +
                                         std::to_string(report_.steps));
  }
  if (receivedSignal != 0)
    return Status::interrupted(
        receivedSignal, "stopped by signal " + std::to_string(receivedSignal) +
                            " after step " + std::to_string(report_.steps) +
                            " of " + std::to_string(lastStep_));
  return Status();
}

uint64_t TrainingLoop::seed() const {
  return options_.seed.value_or(settings_->seed());
}

double TrainingLoop::readLoss() const {
  const std::byte *place = session_.arena_->base() + loss_->offset();
  if (loss_->element_type() == artifact::ElementType::f64) {
    double loss;
    std::memcpy(&loss, place, sizeof(loss));
    return loss;
  }
  float loss;
  std::memcpy(&loss, place, sizeof(loss));
  return loss;
}

void TrainingLoop::logStep(Clock::time_point now) {
  uint64_t samples = (report_.steps - lastLogStep_) * settings_->global_batch();
  TrainRecord record{session_.index().target()->device()->string_view(),
                     session_.index().device_programs()->size(),
                     report_.steps,
                     report_.loss,
                     rate(samples, secondsBetween(lastLog_, now)),
                     rate(report_.samples, report_.seconds)};
  if (options_.logFile >= 0)
    (void)writeText(options_.logFile, formatTrainLine(line_, record));
  lastLog_ = now;
  lastLogStep_ = report_.steps;
}

} // namespace kiln
