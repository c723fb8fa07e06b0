// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training steps: losses do not depend on the micro-batch, the number of
// workers or the run; the same input gives the same bytes; and a composition of
// ops that no model uses trains through the command like any model.
#include "test/compiler/TestDevice.h"
#include "test/compiler/TrainedModel.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

namespace kiln::test {
namespace {

/// Files of samples, the same in every run.
class Data {
public:
  Data() {
    std::mt19937_64 generator(7);
    writeTokens(folder.file("tokens.bin"), generator);
    std::string images, labels;
    for (unsigned i = 0; i < 200; ++i) {
      unsigned label = generator() % 5;
      for (unsigned pixel = 0; pixel < 12; ++pixel)
        images += char(generator() % 120 + (pixel % 5 == label ? 130 : 0));
      labels += char(label);
    }
    writeIdx(folder.file("images.idx"), {200, 12}, images);
    writeIdx(folder.file("labels.idx"), {200}, labels);
  }

  std::string file(const std::string &name) const { return folder.file(name); }
  std::string tokens() const {
    return "data: {kind: tokens, width: 16, path: " + file("tokens.bin") +
           "}\n";
  }
  std::string images() const {
    return "data: {kind: idx, path: " + file("images.idx") +
           ", labels: " + file("labels.idx") + "}\n";
  }

private:
  TemporaryFolder folder;
};

const char kGpt[] = R"(
model: {kind: gpt, layers: 2, hidden: 24, heads: 3, sequence: 16, vocabulary: 37}
training: {global_batch: 8, steps: 20, clip_norm: 1, optimizer: {kind: adamw, learning_rate: 3e-3}}
devices: {threads: 2}
)";
const char kMlp[] = R"(
model: {kind: mlp, inputs: 12, hidden: [33, 18], classes: 5}
training: {global_batch: 8, steps: 20, optimizer: {kind: adam, learning_rate: 1e-2}}
devices: {threads: 2}
)";

struct Subject {
  const char *name;
  const char *text;
  const char *precision;
  double tolerance;
};

class Training : public testing::TestWithParam<Subject> {
protected:
  std::string text() const {
    bool isGpt = GetParam().text == kGpt;
    return GetParam().text + (isGpt ? data.tokens() : data.images());
  }
  std::string precision() const {
    return std::string("training.precision=") + GetParam().precision;
  }

  Data data;
};

TEST_P(Training, LossesDoNotDependOnTheMicroBatch) {
  std::vector<double> whole = train(text(), {precision()});
  ASSERT_EQ(whole.size(), 20u);
  expectFalling(whole);
  for (int micro : {1, 3, 4})
    expectClose(train(text(), {precision(), "training.micro_batch=" +
                                                std::to_string(micro)}),
                whole, GetParam().tolerance,
                std::string(GetParam().name) + ", micro-batch " +
                    std::to_string(micro));
}

// One precision with the full batch at once, the other with accumulation.
TEST_P(Training, LossesAreThoseOfTheReference) {
  bool isWhole = precision().ends_with("f32");
  std::vector<std::string> overrides = {precision(),
                                        isWhole ? "training.micro_batch=none"
                                                : "training.micro_batch=3"};
  expectClose(train(text(), overrides), train(text(), overrides, true),
              GetParam().tolerance,
              std::string(GetParam().name) + ", reference");
}

INSTANTIATE_TEST_SUITE_P(Models, Training,
                         testing::Values(Subject{"gpt_f32", kGpt, "f32", 1e-5},
                                         Subject{"gpt_f64", kGpt, "f64", 1e-10},
                                         Subject{"mlp_f32", kMlp, "f32", 1e-5},
                                         Subject{"mlp_f64", kMlp, "f64",
                                                 1e-10}),
                         [](const testing::TestParamInfo<Subject> &info) {
                           return info.param.name;
                         });

/// The bytes of all variables.
std::string snapshot(const Session &session) {
  std::string bytes;
  for (const artifact::Variable *variable :
       *session.artifact().image().variables()) {
    std::vector<std::byte> value(variable->bytes());
    EXPECT_TRUE(
        session.readVariable(variable->name()->string_view(), value).ok());
    bytes.append(reinterpret_cast<const char *>(value.data()), value.size());
  }
  return bytes;
}

// The update of a step that has gone wrong would spoil the weights for good.
TEST(NotFinite, StepChangesNoVariable) {
  if (!testDeviceComputes())
    GTEST_SKIP() << "no value of this device is ever infinite";
  Data data;
  TemporaryFolder folder;
  for (const char *optimizer :
       {"{kind: sgd, momentum: 0.9, learning_rate: 1e30}",
        "{kind: adam, learning_rate: 1e30}"}) {
    compile(kGpt + data.tokens(),
            {std::string("training.optimizer=") + optimizer,
             "training.clip_norm=0", "training.micro_batch=3"},
            folder.file("model.kiln"));
    Expected<Session> session = Session::load(folder.file("model.kiln"));
    ASSERT_TRUE(session.ok() && session->reserve().ok() &&
                session->initialise(0).ok());
    TrainOptions options;
    options.logFile = -1;
    options.steps = 1;
    std::string before;
    Status status = session->train(options);
    while (status.ok() && *options.steps < 10) {
      before = snapshot(*session);
      options.firstStep = (*options.steps)++;
      status = session->train(options);
    }
    EXPECT_EQ(status.exitCode(), 8) << optimizer;
    EXPECT_FALSE(before.empty());
    EXPECT_EQ(snapshot(*session), before) << optimizer;
  }
}

/// Runs the command with a cache of its own; returns its exit code.
int runCommand(const TemporaryFolder &folder, const std::string &arguments) {
  std::string command = "XDG_CACHE_HOME=" + folder.file("cache") +
                        " '" KILN_COMMAND "' " + arguments + " >" +
                        folder.file("log") + " 2>&1";
  int code = std::system(command.c_str());
  if (code != 0)
    ADD_FAILURE() << command << "\n" << readFile(folder.file("log"));
  return code;
}

TEST(Determinism, TwoCompilesGiveIdenticalBytes) {
  Data data;
  TemporaryFolder folder;
  std::string config = folder.file("model.yaml");
  std::ofstream(config) << kGpt << data.tokens();
  // Another process, another context in this process, and the same again.
  std::string arguments = "compile " + config + " training.micro_batch=3 -o ";
  ASSERT_EQ(
      runCommand(folder, arguments + folder.file("a.kiln") + " --no-cache"), 0);
  Diagnostics diagnostics;
  auto loaded = loadConfig(config, {"training.micro_batch=3"}, diagnostics);
  ASSERT_TRUE(loaded) << diagnostics.text();
  for (const char *name : {"b.kiln", "c.kiln"}) {
    Status status = compileConfig(*loaded, {}, folder.file(name));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::string bytes = readFile(folder.file("a.kiln"));
  EXPECT_FALSE(bytes.empty());
  EXPECT_TRUE(bytes == readFile(folder.file("b.kiln")));
  EXPECT_TRUE(bytes == readFile(folder.file("c.kiln")));
}

// The result of an item does not depend on the worker that computes it.
TEST(Determinism, RunsAndWorkersGiveIdenticalLosses) {
  Data data;
  TemporaryFolder folder;
  std::string artifact = folder.file("model.kiln");
  for (auto [text, source] :
       {std::pair(kGpt, data.tokens()), std::pair(kMlp, data.images())}) {
    compile(text + source, {"training.micro_batch=3"}, artifact);
    std::vector<double> first = run(artifact);
    EXPECT_EQ(first.size(), 20u);
    EXPECT_EQ(first, run(artifact)) << "a second run";
    EXPECT_EQ(first, run(artifact, 1)) << "one worker";
  }
}

// Written so that no part of it is a model of models/; the runtime must not
// care.
TEST(Composition, TrainsThroughTheCommand) {
  Data data;
  TemporaryFolder folder;
  std::string config = folder.file("composition.yaml");
  std::ofstream(config)
      << "model: {kind: file, path: " KILN_SOURCE_FOLDER
         "/test/compiler/inputs/composition.mlir}\n"
         "training: {global_batch: 8, micro_batch: 3, steps: 60, seed: 3,\n"
         "  optimizer: {kind: sgd, learning_rate: 0.1, momentum: 0.9}}\n"
      << data.images();
  std::string fast = folder.file("fast"), reference = folder.file("reference");
  ASSERT_EQ(runCommand(folder,
                       "train --no-run-folder " + config + " --losses " + fast),
            0);
  ASSERT_EQ(runCommand(folder, "train --no-run-folder " + config +
                                   " --reference --losses " + reference),
            0);
  std::vector<double> losses = readLosses(fast);
  ASSERT_EQ(losses.size(), 60u);
  expectClose(losses, readLosses(reference), 1e-5, "composition");
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

} // namespace
} // namespace kiln::test
