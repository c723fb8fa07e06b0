// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The loss scale of f16 falls until gradients are finite and grows after some
// steps that are; a step whose gradients are not changes nothing else.
#include "test/compiler/TestDevice.h"
#include "test/compiler/TrainedModel.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace kiln::test {
namespace {

class LossScale : public testing::Test {
protected:
  void SetUp() override {
    if (!testDeviceComputes())
      GTEST_SKIP() << "no value of this device is ever infinite";
    std::mt19937_64 generator(7);
    std::string images, labels;
    for (unsigned i = 0; i < 40; ++i) {
      for (unsigned pixel = 0; pixel < 12; ++pixel)
        images += char(generator() % 256);
      labels += char(generator() % 5);
    }
    writeIdx(folder.file("images.idx"), {40, 12}, images);
    writeIdx(folder.file("labels.idx"), {40}, labels);
  }

  std::string text(const std::string &training) const {
    return "model: {kind: mlp, inputs: 12, hidden: [33, 18], classes: 5}\n"
           "training: {global_batch: 8, micro_batch: 3, steps: 30, " +
           training +
           "}\ndata: {kind: idx, path: " + folder.file("images.idx") +
           ", labels: " + folder.file("labels.idx") + "}\n";
  }

  /// An artifact that is ready for its first step.
  Expected<Session> start(const std::string &training) {
    compile(text(training), {}, folder.file("model.kiln"));
    Expected<Session> session = Session::load(folder.file("model.kiln"));
    EXPECT_TRUE(session.ok() && session->reserve().ok() &&
                session->initialise(0).ok());
    return session;
  }

  TemporaryFolder folder;
};

/// Values of all variables but those of the loss scale.
std::map<std::string, std::string> readOthers(const Session &session) {
  std::map<std::string, std::string> values;
  for (const artifact::Variable *variable :
       *session.artifact().image().variables()) {
    std::string name = variable->name()->str();
    std::string value(variable->bytes(), '\0');
    EXPECT_TRUE(
        session.readVariable(name, std::as_writable_bytes(std::span(value)))
            .ok());
    if (name != "loss_scale" && name != "finite_steps" &&
        name != "skipped_steps")
      values[name] = value;
  }
  return values;
}

double readNumber(const Session &session, const char *name) {
  double value = 0;
  EXPECT_TRUE(
      session.readVariable(name, std::as_writable_bytes(std::span(&value, 1)))
          .ok());
  return value;
}

/// One step; returns the loss that it reports.
double runStep(Session &session, uint64_t number, const std::string &losses,
               Status &status) {
  TrainOptions options;
  options.logFile = -1;
  options.firstStep = number;
  options.steps = number + 1;
  options.lossesPath = losses;
  status = session.train(options);
  std::vector<double> read = readLosses(losses);
  return read.empty() ? NAN : read.back();
}

TEST_F(LossScale, FollowsTheGradients) {
  const double initial = 0x1p+30;
  constexpr unsigned growthSteps = 3;
  Expected<Session> session =
      start("precision: f16, loss_scale: {initial: " +
            std::to_string(int64_t(initial)) +
            ", growth_steps: " + std::to_string(growthSteps) +
            "}, optimizer: {kind: adam, learning_rate: 1e-2}");
  ASSERT_TRUE(session.ok());
  std::vector<double> wide =
      train(text("optimizer: {kind: adam, learning_rate: 1e-2}"), {});
  double scale = initial;
  unsigned row = 0, skipped = 0, grown = 0;
  for (unsigned step = 0; step < 30; ++step) {
    std::map<std::string, std::string> before = readOthers(*session);
    ASSERT_EQ(readNumber(*session, "loss_scale"), scale);
    Status status;
    double loss = runStep(*session, step, folder.file("losses"), status);
    ASSERT_TRUE(status.ok()) << status.message();
    // Unscaled, and finite whatever the gradients are.
    if (skipped == step)
      EXPECT_NEAR(loss, wide[0], 1.0);
    bool isSkipped = readNumber(*session, "skipped_steps") != skipped;
    if (isSkipped) {
      EXPECT_EQ(readOthers(*session), before) << "step " << step + 1;
      ++skipped;
      row = 0;
      scale /= 2;
    } else {
      EXPECT_NE(readOthers(*session), before) << "step " << step + 1;
      if (++row == growthSteps) {
        scale *= 2;
        row = 0;
        ++grown;
      }
    }
    EXPECT_EQ(readNumber(*session, "skipped_steps"), skipped);
    EXPECT_EQ(readNumber(*session, "finite_steps"), row);
    EXPECT_EQ(readNumber(*session, "step"), step + 1 - skipped);
  }
  EXPECT_GT(skipped, 3u);
  EXPECT_GT(grown, 3u);
}

// The scale cancels: with one that overflows nothing the weights are those of
// another.
TEST_F(LossScale, DoesNotChangeTheUpdate) {
  std::string rest = "optimizer: {kind: sgd, learning_rate: 0.05, momentum: "
                     "0.9}, precision: {preset: f16, messages: f32}, "
                     "loss_scale: {initial: ";
  std::vector<double> first = train(text(rest + "64}"), {}),
                      second = train(text(rest + "1024}"), {});
  expectFalling(first);
  expectClose(second, first, 2e-3, "another loss scale");
}

// Where no scale helps, the run ends as one in f32 does.
TEST_F(LossScale, EndsTheRunAtOne) {
  Expected<Session> session =
      start("precision: f16, loss_scale: {initial: 4}, "
            "optimizer: {kind: sgd, learning_rate: 1e6}");
  ASSERT_TRUE(session.ok());
  TrainOptions options;
  options.logFile = -1;
  Status status = session->train(options);
  EXPECT_EQ(status.exitCode(), 8) << status.message();
  EXPECT_NE(status.message().find("also with a loss scale of 1"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(readNumber(*session, "loss_scale"), 1);
  EXPECT_EQ(readNumber(*session, "skipped_steps"), 3);
}

} // namespace
} // namespace kiln::test
