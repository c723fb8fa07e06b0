// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/metrics/TrainLog.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <regex>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace kiln::test {

using namespace artifact;

static std::string corpus() { return sampleText(1000); }

static const std::vector<std::byte> &kernels() {
  static const std::vector<std::byte> bytes = compileKernels(sampleKernels());
  return bytes;
}

struct TrainResult {
  Status status;
  TrainReport report;
  std::string log, losses;
};

static TrainResult train(const IndexT &index, TrainOptions options = {},
                         unsigned threads = 0) {
  TemporaryFile losses, log;
  SessionOptions sessionOptions;
  sessionOptions.threads = threads;
  Session session = openSession(index, kernels(), sessionOptions);
  EXPECT_TRUE(session.initialise(0).ok());
  options.lossesPath = losses.path();
  options.logFile = ::open(log.path().c_str(), O_WRONLY);
  TrainResult run;
  run.status = session.train(options, &run.report);
  ::close(options.logFile);
  run.log = log.read();
  run.losses = losses.read();
  return run;
}

TEST(TrainLog, FormatsTheLine) {
  char buffer[256];
  EXPECT_EQ(
      formatTrainLine(buffer, {{"cpu", 1}, 100, 9.484375, 4979.03, 4979.03}),
      "| Train Device=cpu:1, Step=100, Loss=9.48438, Rate=4979.03 "
      "samples/sec, GlobalRate=4979.03 samples/sec\n");
  char small[10];
  EXPECT_EQ(formatTrainLine(small, {{"cpu", 1}, 1, 1, 1, 1}).size(), 9u);
}

TEST(TrainLog, WarnsOnceIfItCannotBeWritten) {
  std::vector<std::string> warnings;
  Warn warn = [&](const std::string &warning) { warnings.push_back(warning); };
  int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  TrainLog log(full, warn), none(-1, warn);
  for (int i = 0; i < 2; ++i) {
    log.write("a line\n");
    none.write("a line\n");
  }
  ::close(full);
  EXPECT_EQ(warnings,
            std::vector<std::string>{"the log cannot be written: No space left "
                                     "on device; training goes on"});
}

TEST(TrainLog, LossLinesKeepEveryBit) {
  char buffer[128];
  double loss = 0.1;
  EXPECT_EQ(formatLossLine(buffer, 3, loss),
            "3 0.10000000000000001 0x1.999999999999ap-4\n");
}

TEST(Train, RunsTheStepsAndLogs) {
  TemporaryFile text(corpus());
  TrainResult run = train(sampleTraining(text.path(), 8, 8));
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.report.steps, 10u);
  EXPECT_EQ(run.report.samples, 80u);
  std::regex line("\\| Train Device=cpu:1, Step=(1|5|10), Loss=[0-9.e+-]+, "
                  "Rate=[0-9]+\\.[0-9]{2} samples/sec, "
                  "GlobalRate=[0-9]+\\.[0-9]{2} samples/sec");
  std::istringstream lines(run.log);
  int count = 0;
  for (std::string each; std::getline(lines, each); ++count)
    EXPECT_TRUE(std::regex_match(each, line)) << each;
  EXPECT_EQ(count, 3);
  EXPECT_EQ(std::count(run.losses.begin(), run.losses.end(), '\n'), 10);
  EXPECT_LT(run.report.loss, 109.0 * 109.0 * 0.1); // It learns the mean.
}

TEST(Train, LossesDoNotDependOnThreads) {
  TemporaryFile text(corpus());
  IndexT index = sampleTraining(text.path(), 8, 8);
  std::string losses = train(index).losses;
  EXPECT_EQ(losses, train(index).losses);
  EXPECT_EQ(losses, train(index, {}, 1).losses);
  TrainOptions other;
  other.seed = 8;
  EXPECT_NE(losses, train(index, other).losses);
}

TEST(Train, CountsEpochs) {
  TemporaryFile text(corpus()); // 124 samples of 8.
  TrainOptions options;
  options.epochs = 2;
  TrainResult run = train(sampleTraining(text.path(), 8, 8), options);
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.report.steps, 31u);
}

TEST(Train, GoesOnFromAStep) {
  TemporaryFile text(corpus());
  TrainOptions options;
  options.firstStep = 7;
  TrainResult run = train(sampleTraining(text.path(), 8, 8), options);
  ASSERT_TRUE(run.status.ok());
  EXPECT_EQ(run.report.steps, 10u);
  EXPECT_EQ(run.report.samples, 24u);
  EXPECT_EQ(run.losses.substr(0, 2), "8 ");
}

TEST(Train, StopsAtALossThatIsNotFinite) {
  TemporaryFile text(corpus());
  IndexT index = sampleTraining(text.path(), 8, 8);
  image(index).variables[0]->init->kind = InitKind::constant;
  image(index).variables[0]->init->a = NAN;
  TrainResult run = train(index);
  EXPECT_EQ(run.status.exitCode(), 8);
  EXPECT_EQ(run.status.message(), "loss is nan at step 1");
}

TEST(Train, StopsAfterTheStepWhenSignalled) {
  TemporaryFile text(corpus());
  IndexT index = sampleTraining(text.path(), 8, 8);
  index.settings->training->steps = uint64_t{1} << 40;
  index.settings->training->log_every = 0;
  TemporaryFile losses;
  Session session = openSession(index, kernels());
  ASSERT_TRUE(session.initialise(0).ok());
  TrainOptions options;
  options.logFile = -1;
  options.lossesPath = losses.path();
  // The loop has its handler once a first loss is written.
  std::thread killer([&] {
    while (losses.read().empty())
      std::this_thread::yield();
    ::kill(::getpid(), SIGTERM);
  });
  TrainReport report;
  Status status = session.train(options, &report);
  killer.join();
  EXPECT_EQ(status.code(), Code::stopped);
  EXPECT_EQ(status.exitCode(), 128 + SIGTERM);
  EXPECT_GT(report.steps, 0u);
}

TEST(Train, ReportsBadDataAndSettings) {
  TemporaryFile text(corpus());
  EXPECT_EQ(train(sampleTraining("/nonexistent", 8, 8)).status.code(),
            Code::inputRejected);
  IndexT index = sampleTraining(text.path(), 8, 8);
  index.settings->training->global_batch = 4;
  EXPECT_EQ(
      train(index).status.message(),
      "sample: the replicas take 8 samples together, the global batch has 4");
  index = sampleTraining(text.path(), 8, 8);
  index.settings->training->steps = 0;
  EXPECT_EQ(train(index).status.code(), Code::usage);
  index = sampleTraining(text.path(), 8, 8);
  image(index).programs[0]->outputs[0]->name = "cost";
  EXPECT_EQ(train(index).status.message(),
            "sample: program 'train' has no output 'loss'");
  index = sampleTraining(text.path(), 8, 8);
  index.settings->training.reset();
  EXPECT_EQ(train(index).status.code(), Code::inputRejected);
  index = sampleTraining(text.path(), 8, 8);
  Session session = openSession(sampleTraining(text.path(), 8, 8), kernels());
  TrainOptions options;
  options.lossesPath = "/nonexistent/losses";
  EXPECT_EQ(session.train(options).code(), Code::io);
}

} // namespace kiln::test
