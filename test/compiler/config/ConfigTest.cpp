// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ConfigTexts.h"

#include "compiler/config/ReadValue.h"
#include "compiler/config/YamlTree.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string absolute(const std::string &path) {
  return std::filesystem::absolute(path).string();
}

TEST(Config, HoldsEveryValueWritten) {
  Diagnostics diagnostics;
  std::optional<Config> config =
      parseConfig(gptText, "some/folder/a.yaml", {}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->model.kind, ModelKind::Gpt);
  EXPECT_EQ(config->model.feedForward, 256);
  EXPECT_FALSE(config->model.tiedHead);
  EXPECT_EQ(config->training.microBatch, MicroBatchRequest::ofSize(4));
  EXPECT_EQ(config->training.optimizer.kind, OptimizerKind::AdamW);
  EXPECT_THAT(config->training.optimizer.betas, ElementsAre(0.9, 0.95));
  EXPECT_EQ(config->training.schedule.kind, ScheduleKind::Cosine);
  EXPECT_EQ(config->training.schedule.steps, 400);
  EXPECT_EQ(config->data.path, absolute("some/folder/corpus.txt"));
  EXPECT_EQ(config->devices.memory, int64_t(2) << 30);
  EXPECT_EQ(config->devices.threads, 2);
}

TEST(Config, DefaultsAreThoseOfPyTorch) {
  Diagnostics diagnostics;
  std::optional<Config> config =
      parseConfig(smallGptText, "a.yaml", {}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->model.feedForward, 32);
  EXPECT_TRUE(config->model.tiedHead);
  EXPECT_EQ(config->training.microBatch, MicroBatchRequest());
  const OptimizerConfig &optimizer = config->training.optimizer;
  EXPECT_EQ(optimizer.kind, OptimizerKind::AdamW);
  EXPECT_EQ(optimizer.learningRate, 1e-3);
  EXPECT_THAT(optimizer.betas, ElementsAre(0.9, 0.999));
  EXPECT_EQ(optimizer.epsilon, 1e-8);
  EXPECT_EQ(optimizer.weightDecay, 0.01);
  EXPECT_EQ(config->devices.threads, availableCores());
  EXPECT_EQ(config->data.kind, DataKind::None);

  config = parseConfig(smallGptText, "a.yaml",
                       {"training.optimizer={kind: sgd}"}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->training.optimizer.weightDecay, 0);
  EXPECT_EQ(config->training.optimizer.momentum, 0);
}

TEST(Config, MlpTakesOneWidthOrAList) {
  Diagnostics diagnostics;
  EXPECT_THAT(
      parseConfig(smallMlpText, "a.yaml", {}, diagnostics)->model.hiddenSizes,
      ElementsAre(256));
  EXPECT_THAT(
      parseConfig(smallMlpText, "a.yaml", {"model.hidden=64"}, diagnostics)
          ->model.hiddenSizes,
      ElementsAre(64));
  EXPECT_THAT(parseConfig(smallMlpText, "a.yaml", {"model.hidden=[64, 32]"},
                          diagnostics)
                  ->model.hiddenSizes,
              ElementsAre(64, 32));
}

TEST(Config, PrintedTextLoadsAsTheSameConfig) {
  for (const std::string &text :
       {gptText, smallGptText, smallBertText, smallResnetText,
        smallClassifierText, smallMlpText, smallFileText}) {
    Diagnostics diagnostics;
    std::string printed =
        parseConfig(text, "a.yaml", {}, diagnostics).value().print();
    std::optional<Config> again =
        parseConfig(printed, "b.yaml", {}, diagnostics);
    ASSERT_TRUE(again) << diagnostics.text() << printed;
    EXPECT_EQ(again->print(), printed);
  }
}

TEST(Config, OddPathsSurvivePrinting) {
  Diagnostics diagnostics;
  std::string text =
      replaced(gptText, "corpus.txt", "\"a \\\"b\\\" \\\\c: #\\t\"");
  std::optional<Config> config = parseConfig(text, "a.yaml", {}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->data.path, absolute("a \"b\" \\c: #\t"));
  std::optional<Config> again =
      parseConfig(config->print(), "a.yaml", {}, diagnostics);
  ASSERT_TRUE(again) << diagnostics.text();
  EXPECT_EQ(again->data.path, config->data.path);
}

TEST(Config, AllErrorsInOrderOfPosition) {
  std::string text = R"(model:
  kind: gpt
  layers: abc
  hidden: 256
  heads: 7
  sequence: 64
  vocabulary: 256
  vocabulary: 512
trainning:
  global_batch: 0
  steps: 10
data: {kind: txt}
)";
  EXPECT_THAT(
      errorsOf(text, {"log.evry=3", "training.seed=-1"}),
      ElementsAre(
          "a.yaml:3:11: error: model.layers: found 'abc', wanted a positive "
          "integer up to 10000",
          "a.yaml:5:10: error: model.heads: 7 does not divide model.hidden = "
          "256; try 8 or 4",
          "a.yaml:8:3: error: duplicate key 'model.vocabulary', first given on "
          "line 7",
          "a.yaml:9:1: error: unknown key 'trainning' (did you mean "
          "'training'?)",
          "a.yaml:10:17: error: training.global_batch: found '0', wanted a "
          "positive integer up to 16777216",
          "a.yaml:12:14: error: data.kind: found 'txt', wanted text, tokens, "
          "documents, tsv, idx or none (did you mean 'text'?)",
          "command line: error: 'log.evry=3': unknown key 'log.evry' (did you "
          "mean 'log.every'?)",
          "command line: error: 'training.seed=-1': training.seed: found '-1', "
          "wanted an integer from 0 to 9223372036854775807"));
}

/// A change to the valid config and the one error it must give.
struct BadConfig {
  const char *piece;
  const char *by;
  const char *error;
};

class BadConfigTest : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, GivesOneClearError) {
  const BadConfig &bad = GetParam();
  EXPECT_THAT(errorsOf(replaced(gptText, bad.piece, bad.by)),
              ElementsAre(HasSubstr(bad.error)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadConfigTest,
    testing::Values(
        BadConfig{"steps: 400", "steps: 4.5", "found '4.5', wanted a positive"},
        BadConfig{"steps: 400", "steps: '400'", "found the quoted text '400'"},
        BadConfig{"steps: 400", "steps: [400]", "found a list, wanted"},
        BadConfig{"steps: 400", "steps: {a: 1}", "found a map, wanted"},
        BadConfig{"steps: 400", "steps:", "found nothing, wanted"},
        BadConfig{"steps: 400", "steps: 99999999999999999999", "wanted"},
        BadConfig{"  steps: 400\n", "",
                  "12:1: error: missing key 'training.steps' (or"},
        BadConfig{"  steps: 400\n", "  steps: 400\n  epochs: 2\n",
                  "given together with training.steps"},
        BadConfig{"  steps: 400", "  epochs: 2", "cosine needs"},
        BadConfig{"  layers: 2\n", "",
                  "1:1: error: missing key 'model.layers' (transformer"},
        BadConfig{"kind: gpt", "kind: gtp", "(did you mean 'gpt'?)"},
        BadConfig{"tied_head: false", "tied_head: no", "wanted true or false"},
        BadConfig{"micro_batch: 4", "micro_batch: explore",
                  "search over micro-batch sizes is not available yet; give "
                  "auto, a number or none"},
        BadConfig{"micro_batch: 4", "micro_batch: {min: 1, max: 4}",
                  "search over micro-batch sizes is not available yet"},
        BadConfig{"micro_batch: 4", "micro_batch: {min: 5, max: 4}",
                  "wanted {min: a, max: b} with positive integers, min at most "
                  "max"},
        BadConfig{"micro_batch: 4", "micro_batch: {min: 1}",
                  "wanted {min: a, max: b}"},
        BadConfig{"micro_batch: 4", "micro_batch: {min: 0, max: 4}",
                  "wanted {min: a, max: b}"},
        BadConfig{"micro_batch: 4", "micro_batch: {min: 1, max: 4, step: 2}",
                  "wanted {min: a, max: b}"},
        BadConfig{"micro_batch: 4", "micro_batch: all",
                  "wanted a positive integer, auto or none"},
        BadConfig{"micro_batch: 4", "micro_batch: 9",
                  "9 is more than training.global_batch = 8"},
        BadConfig{"tied_head: false", "dropout: 1",
                  "found '1', wanted a number of at least 0 and below 1"},
        BadConfig{"tied_head: false", "attention_dropout: -0.1", "found '-0.1"},
        BadConfig{"tied_head: false", "tied_head: 'true'", "the quoted text"},
        BadConfig{"precision: f32", "precision: fp16",
                  "17:14: error: training.precision: found 'fp16', wanted f32, "
                  "f64, bf16 or f16, or a map of parts such as"},
        BadConfig{"precision: f32", "precision: {computes: bf16}",
                  "found the part 'computes', wanted preset, parameters, "
                  "compute, activations, gradients, messages, master or "
                  "moments (did you mean 'compute'?)"},
        BadConfig{"precision: f32",
                  "precision: {compute: f32, preset: bf16, compute: bf16}",
                  "17:43: error: duplicate key 'training.precision.compute', "
                  "first given on line 17"},
        BadConfig{"precision: f32", "precision: {preset: bf16, preset: f16}",
                  "duplicate key 'training.precision.preset'"},
        BadConfig{"seed: 0", "loss_scale: {growth_steps: 9007199254740993}",
                  "found '9007199254740993', wanted a positive integer up to "
                  "9007199254740992"},
        BadConfig{"precision: f32", "precision: {preset: bf16, moments: none}",
                  "found 'none' for moments, wanted f32, f64, bf16 or f16"},
        BadConfig{"precision: f32",
                  "precision: {parameters: f32, compute: f16, master: none}",
                  "found master: none with parameters: f32: stochastic "
                  "rounding is for parameters of 16 bits, and these are their "
                  "own master; wanted parameters: bf16, or no master"},
        BadConfig{"precision: f32", "precision: {preset: f16, master: none}",
                  "found master: none with parameters: f16, which has too "
                  "small a range for updates"},
        BadConfig{"precision: f32", "precision: {preset: bf16, compute: f16}",
                  "found parameters: bf16 with compute: f16; wanted one type "
                  "of 16 bits"},
        BadConfig{"precision: f32", "precision: {compute: f64}",
                  "found compute: f64 with parameters: f32; f64 is for all "
                  "parts or none"},
        BadConfig{"precision: f32", "precision: {preset: bf16, master: bf16}",
                  "found master: bf16, which would lose small updates; wanted "
                  "master: f32, or none for stochastic rounding"},
        BadConfig{"precision: f32", "precision: {preset: f16, moments: f16}",
                  "found moments: f16, in which squares of gradients vanish"},
        BadConfig{"tied_head: false", "max_positions: 63",
                  "63 is less than model.sequence = 64"},
        BadConfig{"[0.9, 0.95]", "[0.9]", "found a list of 1, wanted"},
        BadConfig{"[0.9, 0.95]", "[0.9, 1.0]", "found '1.0', wanted"},
        BadConfig{"learning_rate: 1e-3", "learning_rate: nan", "found 'nan'"},
        BadConfig{"learning_rate: 1e-3", "learning_rate: -1", "at least 0"},
        BadConfig{"minimum: 1e-4", "minimum: 1", "1 is more than training.opt"},
        BadConfig{"weight_decay: 0.1", "momentum: 0.9",
                  "key 'training.optimizer.momentum' does not apply to "
                  "training.optimizer.kind = adamw"},
        BadConfig{"kind: cpu", "kind: cuda", "'cuda' is not available yet"},
        BadConfig{"count: 1", "count: 65537",
                  "devices.count: found '65537', wanted a positive integer up "
                  "to 65536"},
        BadConfig{"count: 1", "count: 9",
                  "training.global_batch: 8 samples are too few for 9 "
                  "replicas"},
        BadConfig{"memory: 2GiB", "memory: 2Gb", "found '2Gb', wanted a size"},
        BadConfig{"zero: auto", "zero: 4",
                  "found '4', wanted auto, 0, 1, 2 or 3"},
        BadConfig{"offload: auto", "offload: optimiser",
                  "wanted auto, none or optimizer (did you mean 'optimizer'?)"},
        BadConfig{"recompute: auto", "recompute: [full]",
                  "found a list, wanted auto, none, attention or full"},
        BadConfig{"mesh: auto", "mesh: {data: 4, tensor: 2}",
                  "devices.mesh: data * tensor = 4 * 2 is not devices.count = "
                  "1"},
        BadConfig{"mesh: auto", "mesh: {data: 2147483647, tensor: 2147483647}",
                  "is not devices.count = 1"},
        BadConfig{"mesh: auto", "mesh: {data: 1, data: 1}",
                  "found the axis 'data' twice"},
        BadConfig{"mesh: auto", "mesh: {tensor: 0}",
                  "found '0', wanted a positive integer"},
        BadConfig{"mesh: auto", "speeds: [1, 2]",
                  "devices.speeds: found 2 speeds, wanted one per device, 1, "
                  "or one per replica, 1"},
        BadConfig{"mesh: auto", "speeds: [0]",
                  "found '0', wanted auto or a list of positive numbers"},
        BadConfig{"mesh: auto", "speeds: []",
                  "found a list, wanted auto or a list of positive numbers"},
        BadConfig{"mesh: auto", "speeds: 1",
                  "found '1', wanted auto or a list of"},
        BadConfig{"mesh: auto", "sequence_parallel: 1", "wanted true or false"},
        BadConfig{"mesh: auto", "mesh: {dat: 1}", "(did you mean 'data'?)"},
        BadConfig{"log: {every: 20}", "checkpoint: {every: 100, keep: 0}",
                  "checkpoint.keep: found '0', wanted a positive integer"},
        BadConfig{"log: {every: 20}", "checkpoint: {each: 100}",
                  "unknown key 'checkpoint.each'"},
        BadConfig{
            "seed: 0", "init: ''",
            "training.init: found the quoted text '', wanted the path of"},
        BadConfig{"log: {every: 20}", "steps: 20",
                  "unknown key 'steps' (did you mean 'training.steps'?)"},
        BadConfig{"log: {every: 20}", "zzzzzz: 20", "unknown key 'zzzzzz'"},
        BadConfig{"log: {every: 20}", "log: 20",
                  "log: found '20', wanted a map"},
        BadConfig{"log: {every: 20}", "log: {every: *x}", "error: "},
        BadConfig{"seed: 0", "seed: &x 0", "found an anchor"},
        BadConfig{"seed: 0", "seed: !!int 0", "found the tag"},
        BadConfig{"log: {every: 20}", "log: {every: 20", "error: "},
        BadConfig{"log: {every: 20}", "log: {every: 20}\n---\nmodel: 1",
                  "found a second document"},
        BadConfig{"path: corpus.txt", "path: ''", "wanted the path of a file"},
        BadConfig{"kind: text, path: corpus.txt", "kind: text",
                  "missing key 'data.path'"}),
    [](const testing::TestParamInfo<BadConfig> &info) {
      return "case" + std::to_string(info.index);
    });

TEST(Config, DataSuitsTheModel) {
  EXPECT_THAT(errorsOf(smallGptText, {"data={kind: idx, path: a, labels: b}"}),
              ElementsAre(HasSubstr("gpt trains on tokens")));
  EXPECT_THAT(
      errorsOf(replaced(smallMlpText, "idx, path: images, labels: digits",
                        "text, path: a")),
      ElementsAre(HasSubstr("mlp trains on labelled samples")));
}

// Zeros are trained on only if they are asked for: on them a loss falls too.
TEST(Config, DataMayNotBeForgotten) {
  std::string forgotten = replaced(smallGptText, "data: {kind: none}\n", "");
  auto isMissed = HasSubstr("missing key 'data.kind' (format of the data; none "
                            "is zeros");
  EXPECT_THAT(errorsOf(forgotten), ElementsAre(isMissed));
  EXPECT_THAT(errorsOf(forgotten + "data: {path: a}"), ElementsAre(isMissed));
  EXPECT_THAT(errorsOf(forgotten, {"data.kind=none"}), ElementsAre());
}

TEST(Config, EveryFamilyHasASmallestConfig) {
  for (const std::string &text : {smallGptText, smallBertText, smallResnetText,
                                  smallClassifierText, smallMlpText})
    EXPECT_THAT(errorsOf(text), ElementsAre());
}

TEST(Config, EveryFamilyHasItsData) {
  auto with = [](const std::string &text, const std::string &kind) {
    std::string labels = kind == "idx" ? ", labels: b" : "";
    return errorsOf(text, {"data={kind: " + kind + ", path: a" + labels + "}"});
  };
  EXPECT_THAT(with(smallBertText, "documents"), ElementsAre());
  EXPECT_THAT(with(smallClassifierText, "tsv"), ElementsAre());
  EXPECT_THAT(with(smallResnetText, "idx"), ElementsAre());
  EXPECT_THAT(with(smallBertText, "text"),
              ElementsAre(HasSubstr("bert trains on pairs of sentences; found "
                                    "'text', wanted documents or none")));
  EXPECT_THAT(with(smallClassifierText, "idx"),
              ElementsAre(HasSubstr("wanted tsv or none")));
  EXPECT_THAT(with(smallResnetText, "tsv"),
              ElementsAre(HasSubstr("wanted idx or none")));
}

TEST(Config, BertPredictsNoMoreThanItReads) {
  Diagnostics diagnostics;
  // 15 % of 21, rounded up.
  EXPECT_EQ(
      parseConfig(smallBertText, "a.yaml", {}, diagnostics)->model.predictions,
      4);
  EXPECT_THAT(errorsOf(smallBertText, {"model.predictions=21"}), ElementsAre());
  EXPECT_THAT(errorsOf(smallBertText, {"model.predictions=22"}),
              ElementsAre(HasSubstr("model.predictions: 22 is more than "
                                    "model.sequence = 21")));
}

TEST(Config, StatisticsGroupsAreWhole) {
  EXPECT_THAT(errorsOf(smallResnetText, {"training.micro_batch=32"}),
              ElementsAre());
  EXPECT_THAT(errorsOf(smallResnetText, {"training.global_batch=7"}),
              ElementsAre());
  EXPECT_THAT(errorsOf(smallResnetText, {"training.global_batch=48"}),
              ElementsAre(HasSubstr(
                  "training.global_batch: 48 is not a multiple of "
                  "model.statistics_group = 32, whose samples batch norm takes "
                  "together; try 32 or 64, or a model.statistics_group of "
                  "24")));
  EXPECT_THAT(errorsOf(smallResnetText, {"training.micro_batch=40"}),
              ElementsAre(HasSubstr("together; try 32 or 64")));
  EXPECT_THAT(errorsOf(smallResnetText, {"training.micro_batch=8"}),
              ElementsAre(HasSubstr("together; try 32")));
  EXPECT_THAT(errorsOf(smallResnetText,
                       {"training.micro_batch=8", "model.statistics_group=8"}),
              ElementsAre());
  EXPECT_THAT(errorsOf(smallResnetText, {"model.depth=34"}),
              ElementsAre(HasSubstr("found '34', wanted 18, 50 or 101")));
}

TEST(Config, PlansAreRead) {
  Diagnostics diagnostics;
  std::optional<Config> config = parseConfig(
      gptText, "a.yaml",
      {"devices={count: 8, mesh: {data: 4, tensor: 2}, zero: 2, offload: "
       "optimizer, recompute: attention, sequence_parallel: false, speeds: [1, "
       "1, 1, 0.5]}"},
      diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->devices.mesh, (MeshShape{4, 2}));
  EXPECT_EQ(config->devices.zero, 2);
  EXPECT_EQ(config->devices.offload, Offload::Optimizer);
  EXPECT_EQ(config->devices.recompute, Recompute::Attention);
  EXPECT_FALSE(config->devices.isSequenceParallel);
  EXPECT_EQ(config->devices.threads,
            std::max<int64_t>(1, availableCores() / 8));
  EXPECT_THAT(resolvePlan(*config).shares(*config), ElementsAre(3, 2, 2, 1));
  std::string printed = config->print();
  EXPECT_THAT(printed, HasSubstr("\n  mesh: {data: 4, tensor: 2}\n"));
  EXPECT_THAT(printed, HasSubstr("\n  speeds: [1, 1, 1, 0.5]\n"));
  config = parseConfig(printed, "b.yaml", {}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text() << printed;
  EXPECT_EQ(config->print(), printed);
}

// A key on the command line replaces the alternative key of the file.
TEST(Config, StepsReplaceEpochs) {
  Diagnostics diagnostics;
  std::string text = gptText;
  text.replace(text.find("steps: 400"), 10, "epochs: 3");
  auto config = parseConfig(text, "a.yaml", {"training.steps=7"}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->training.steps, 7);
  config = parseConfig(
      gptText, "a.yaml",
      {"training.schedule={kind: constant}", "training.epochs=2"}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->training.epochs, 2);
}

TEST(Config, StepsAndEpochsTogetherAreAnError) {
  const std::string constant = "training.schedule={kind: constant}",
                    steps = "training.steps=5", epochs = "training.epochs=2";
  std::string withEpochs = replaced(gptText, "steps: 400", "epochs: 3");
  auto isRefused = HasSubstr("given together with training.steps");
  for (const std::string &text : {gptText, withEpochs}) {
    EXPECT_THAT(errorsOf(text, {constant, steps, epochs}),
                ElementsAre(isRefused));
    EXPECT_THAT(errorsOf(text, {constant, epochs, steps}),
                ElementsAre(isRefused));
    EXPECT_THAT(errorsOf(text, {constant, epochs, steps, epochs}),
                ElementsAre(isRefused));
  }
}

// An artifact must be able to show `auto` and other requests as written.
TEST(Config, RequestsStayAsWritten) {
  Diagnostics diagnostics;
  Config config =
      parseConfig(gptText, "a.yaml",
                  {"devices.count=4", "devices.threads=auto",
                   "training.micro_batch=auto", "devices.speeds=auto"},
                  diagnostics)
          .value();
  EXPECT_FALSE(config.devices.mesh);
  EXPECT_FALSE(config.devices.zero);
  EXPECT_FALSE(config.devices.offload);
  EXPECT_FALSE(config.devices.recompute);
  EXPECT_EQ(config.training.microBatch.kind, MicroBatchRequest::Kind::Auto);
  EXPECT_EQ(config.devices.threads, std::max<int64_t>(1, availableCores() / 4));
  std::string printed = config.print();
  for (const char *key :
       {"mesh", "zero", "offload", "recompute", "speeds", "micro_batch"})
    EXPECT_THAT(printed, HasSubstr("\n  " + std::string(key) + ": auto\n"));
  EXPECT_EQ(parseConfig(printed, "b.yaml", {}, diagnostics)->print(), printed);
  // A written 0 is kept and does not print as auto.
  config =
      parseConfig(gptText, "a.yaml", {"devices.zero=0"}, diagnostics).value();
  EXPECT_EQ(config.devices.zero, 0);
  EXPECT_THAT(config.print(), HasSubstr("\n  zero: 0\n"));
}

TEST(Config, ReplicasTakeWholeStatisticsGroups) {
  EXPECT_THAT(errorsOf(smallResnetText, {"devices.count=2"}), ElementsAre());
  EXPECT_THAT(
      errorsOf(smallResnetText, {"devices.count=4"}),
      ElementsAre(HasSubstr("training.global_batch: 64 samples, 2 groups of 32 "
                            "that batch norm takes together, are too few for 4 "
                            "replicas")));
  EXPECT_THAT(errorsOf(smallResnetText,
                       {"devices.count=4", "model.statistics_group=16"}),
              ElementsAre());
}

// `none` is not the same as nothing: without the section the last state is
// saved.
TEST(Config, SectionsThatMayBeLeftOutCanBeNone) {
  Diagnostics diagnostics;
  Config config =
      parseConfig(gptText, "a.yaml",
                  {"evaluation.every=3", "evaluation=none", "checkpoint=none"},
                  diagnostics)
          .value();
  EXPECT_EQ(config.checkpoint.presence, Presence::None);
  EXPECT_EQ(config.checkpoint.keep, 0);
  std::string printed = config.print();
  EXPECT_THAT(printed, HasSubstr("\nevaluation: none\n"));
  EXPECT_THAT(printed, HasSubstr("\ncheckpoint: none\n"));
  EXPECT_EQ(parseConfig(printed, "b.yaml", {}, diagnostics)->print(), printed);
  config = parseConfig(printed, "b.yaml", {"checkpoint.every=5"}, diagnostics)
               .value();
  EXPECT_EQ(config.checkpoint.presence, Presence::Given);
  EXPECT_THAT(errorsOf(gptText, {"log=none", "checkpoint=all"}),
              ElementsAre(HasSubstr("log: found 'none', wanted a map"),
                          HasSubstr("checkpoint: found 'all', wanted a map or "
                                    "none")));
}

TEST(Config, EvaluationHasDataOfTheSameKind) {
  Diagnostics diagnostics;
  Config config = parseConfig(gptText, "folder/a.yaml",
                              {"evaluation={path: b, every: 10}"}, diagnostics)
                      .value();
  EXPECT_EQ(config.evaluation.every, 10);
  EXPECT_THAT(config.print(), HasSubstr("evaluation:\n  every: 10\n  path: "));
  EXPECT_THAT(parseConfig(gptText, "a.yaml", {}, diagnostics)->print(),
              Not(HasSubstr("evaluation")));
  EXPECT_THAT(errorsOf(gptText, {"evaluation={path: b, every: 10}"}),
              ElementsAre());
  EXPECT_THAT(errorsOf(gptText, {"evaluation={path: b, every: step}"}),
              ElementsAre(HasSubstr("found 'step', wanted a positive integer "
                                    "or epoch")));
  EXPECT_THAT(errorsOf(gptText, {"evaluation={every: epoch}"}), ElementsAre());
  EXPECT_THAT(
      errorsOf(gptText, {"evaluation={fraction: 0}"}),
      ElementsAre(HasSubstr("evaluation.fraction: found 0, wanted more: "
                            "there is no evaluation.path")));
  EXPECT_THAT(
      errorsOf(smallMlpText, {"evaluation={labels: b}"}),
      ElementsAre(HasSubstr("evaluation.labels: wants evaluation.path")));
  EXPECT_THAT(errorsOf(gptText, {"evaluation={path: b, labels: c}"}),
              ElementsAre(HasSubstr("evaluation.labels: does not apply to "
                                    "data.kind = text")));
  EXPECT_THAT(errorsOf(smallMlpText, {"evaluation={path: b}"}),
              ElementsAre(HasSubstr("missing key 'evaluation.labels'")));
  EXPECT_THAT(errorsOf(smallGptText, {"evaluation={path: b}"}),
              ElementsAre(HasSubstr("found data.kind = none")));
}

TEST(Config, WordsMayBeQuoted) {
  EXPECT_THAT(
      errorsOf(replaced(gptText, "micro_batch: 4", "micro_batch: \"none\"")),
      ElementsAre());
  EXPECT_THAT(errorsOf(replaced(gptText, "threads: 2", "threads: 'auto'")),
              ElementsAre());
  EXPECT_THAT(errorsOf(replaced(gptText, "memory: 2GiB", "memory: 'auto'")),
              ElementsAre());
}

TEST(Config, ErrorsArePrintable) {
  EXPECT_THAT(
      errorsOf(replaced(gptText, "steps: 400", "steps: \"a\\n\\x1b[31m\"")),
      ElementsAre(HasSubstr("found the quoted text "
                            "'a\\x0a\\x1b[31m', wanted")));
  EXPECT_THAT(errorsOf(replaced(gptText, "steps: 400", "caf\xc3\xa9: 400")),
              Contains(HasSubstr("unknown key 'training.caf\xc3\xa9'")));
  EXPECT_THAT(errorsOf(gptText, {"log.\xff\x80=1", "log.\xc0\xaf=1",
                                 "log.\xed\xa0\x80=1"}),
              ElementsAre(HasSubstr("unknown key 'log.\\xff\\x80'"),
                          HasSubstr("unknown key 'log.\\xc0\\xaf'"),
                          HasSubstr("unknown key 'log.\\xed\\xa0\\x80'")));
}

TEST(Config, EpochsNeedData) {
  EXPECT_THAT(errorsOf("model: {kind: mlp}\n"
                       "training: {global_batch: 2, epochs: 1}\n"
                       "data: {kind: none}\n"),
              ElementsAre(HasSubstr("there is no data to pass over")));
}

TEST(Config, EmptyFileMissesWhatIsRequired) {
  EXPECT_THAT(errorsOf(""),
              ElementsAre(HasSubstr("missing key 'model.kind'"),
                          HasSubstr("missing key 'training.global_batch'"),
                          HasSubstr("missing key 'data.kind'"),
                          HasSubstr("missing key 'training.steps'")));
}

TEST(Config, ScalarsAndListsAreNoConfigs) {
  EXPECT_THAT(errorsOf("hello"),
              ElementsAre(HasSubstr("wanted a map of keys")));
  EXPECT_THAT(errorsOf("[1]"), ElementsAre(HasSubstr("wanted a map of keys")));
}

TEST(Config, AliasesAreRefused) {
  EXPECT_THAT(
      errorsOf(replaced(replaced(gptText, "seed: 0", "seed: &x 20"),
                        "every: 20", "every: *x")),
      ElementsAre(HasSubstr("found an anchor"), HasSubstr("found an alias")));
}

TEST(Config, DepthIsLimited) {
  std::string deep(65, '[');
  EXPECT_THAT(errorsOf("model: " + deep),
              ElementsAre(HasSubstr("more than 64 levels of nesting")));
  EXPECT_FALSE(errorsOf(std::string(100000, '[')).empty());
  EXPECT_FALSE(errorsOf(std::string(100000, '{')).empty());
}

TEST(Config, SizeIsLimited) {
  EXPECT_THAT(errorsOf(gptText + "#" + std::string(maximumConfigBytes, ' ')),
              ElementsAre(HasSubstr("bytes, wanted at most 1048576")));
}

TEST(Config, FilesThatCannotBeRead) {
  Diagnostics missing;
  EXPECT_FALSE(loadConfig("/nowhere/a.yaml", {}, missing));
  EXPECT_THAT(missing.lines(),
              ElementsAre("/nowhere/a.yaml:1:1: error: No such file or "
                          "directory"));
  Diagnostics folder;
  EXPECT_FALSE(loadConfig("/tmp", {}, folder));
  EXPECT_THAT(folder.lines(), ElementsAre(HasSubstr("found a folder")));
}

TEST(Overrides, ReplaceWhatTheFileHas) {
  Diagnostics diagnostics;
  std::optional<Config> config =
      parseConfig(gptText, "folder/a.yaml",
                  {"training.steps=7", "data.path=other.txt", "log={every: 3}",
                   "training.optimizer.betas=[0.5, 0.6]"},
                  diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  EXPECT_EQ(config->training.steps, 7);
  EXPECT_EQ(config->data.path, absolute("other.txt"));
  EXPECT_EQ(config->log.every, 3);
  EXPECT_THAT(config->training.optimizer.betas, ElementsAre(0.5, 0.6));
}

TEST(Overrides, MendAnIllTypedValue) {
  EXPECT_THAT(errorsOf(replaced(gptText, "steps: 400", "steps: abc"),
                       {"training.steps=5"}),
              ElementsAre());
}

TEST(Overrides, AreNamedInErrors) {
  EXPECT_THAT(
      errorsOf(gptText, {"steps", "=3", "training.steps=abc", "traning.seed=1",
                         "log.every={", "model.heads=7"}),
      ElementsAre(
          HasSubstr("command line: error: 'steps': wanted key=value"),
          HasSubstr("command line: error: '=3': wanted key=value"),
          HasSubstr("command line: error: 'training.steps=abc': "
                    "training.steps: found 'abc'"),
          HasSubstr("unknown key 'traning' (did you mean 'training'?)"),
          HasSubstr("command line: error: 'log.every={': "),
          HasSubstr("command line: error: 'model.heads=7': model.heads: 7 "
                    "does not divide")));
}

TEST(Configs, ThoseInTheTreeAreValid) {
  size_t count = 0;
  for (const auto &file :
       std::filesystem::directory_iterator(KILN_CONFIGS_FOLDER)) {
    Diagnostics diagnostics;
    EXPECT_TRUE(loadConfig(file.path().string(), {}, diagnostics))
        << diagnostics.text();
    ++count;
  }
  EXPECT_GE(count, 6u);
}

} // namespace
} // namespace kiln::test
