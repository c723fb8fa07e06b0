// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/shard/PlanCase.h"
#include "test/compiler/TestDevice.h"
#include "test/compiler/TrainedModel.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

namespace kiln::test {

Zoo::Zoo() {
  std::mt19937_64 generator(11);
  writeTokens(folder.file("tokens.bin"), generator);
  auto word = [&] {
    std::string text;
    for (unsigned i = 0; i < 2; ++i) {
      text += "bdfgklm"[generator() % 7];
      text += "aeiou"[generator() % 5];
    }
    return text;
  };
  std::ofstream pages(folder.file("pages.txt")),
      lines(folder.file("lines.tsv"));
  for (unsigned i = 0; i < 30; ++i) {
    for (unsigned sentence = 0; sentence < 2 + generator() % 5; ++sentence) {
      std::string text = word();
      for (unsigned j = 0; j < 3 + generator() % 6; ++j)
        text += " " + word();
      pages << text << " .\n";
    }
    pages << "\n";
    std::string text = word();
    for (unsigned j = 0; j < generator() % 9; ++j)
      text += " " + word();
    lines << generator() % 5 << "\t" << text << "\n";
  }
  std::string images, labels;
  for (unsigned i = 0; i < 24; ++i) {
    for (unsigned pixel = 0; pixel < 32 * 32; ++pixel)
      images += char(generator() % 256);
    labels += char(generator() % 5);
  }
  writeIdx(folder.file("images.idx"), {24, 32, 32}, images);
  writeIdx(folder.file("labels.idx"), {24}, labels);
}

namespace {
/// Picks sizes of a model: the usual ones, or drawn ones by `Model::sizes`.
class Sizes {
public:
  explicit Sizes(const Model &model)
      : isUsual(model.sizes == 0),
        generator(model.sizes * 131 + model.family.size()) {}

  template <typename T> T pick(T usual, std::vector<T> all) {
    T drawn = all[generator() % all.size()];
    return isUsual ? usual : drawn;
  }
  std::string number(int64_t usual, std::vector<int64_t> all) {
    return std::to_string(pick(usual, all));
  }
  std::string text(std::string usual, std::vector<std::string> all) {
    return pick(usual, all);
  }

private:
  bool isUsual;
  std::mt19937_64 generator;
};
} // namespace

// The batch of a ResNet is three groups of norms.
int64_t Model::globalBatch() const {
  return family == "resnet" ? 12 : Sizes(*this).pick<int64_t>(11, {9, 11, 13});
}

double Model::bound() const {
  if (isNarrow())
    return family == "resnet" ? 5e-2 : 5e-3;
  if (precision == "f64")
    return 1e-10;
  return family == "resnet" ? 1e-4 : 1e-5;
}

// Epsilon is large, because gradients that are only rounding errors must not
// become steps; for the same reason there is no Adam where norms of few values
// magnify small differences.
std::string Zoo::describe(const Model &model) const {
  const std::string &family = model.family;
  Sizes sizes(model);
  std::string adamw = "{kind: adamw, learning_rate: 2e-3, epsilon: 1e-4, "
                      "weight_decay: 0.1}",
              // Rounding to 16 bits is magnified more.
      sgd = "{kind: sgd, momentum: 0.9, learning_rate: " +
            std::string(model.isNarrow() ? "1e-5" : "1e-4") + "}";
  std::string optimizer = sizes.text(
      adamw,
      {adamw, adamw, "{kind: adam, learning_rate: 2e-3, epsilon: 1e-4}",
       "{kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.01}"});
  std::string clip = sizes.text("0.5", {"0.5", "0"});
  // Without clipping its rounding grows thirtyfold with each step: on one
  // device f32 is 8e-3 away from f64 after five.
  if (family == "resnet" && model.precision != "f64")
    clip = "0.5";
  std::string training =
      "training: {steps: 5, clip_norm: " + clip +
      ", global_batch: " + std::to_string(model.globalBatch()) +
      ", optimizer: " + (family == "resnet" ? sgd : optimizer) + "}\n";
  int64_t heads = sizes.pick<int64_t>(3, {1, 2, 3, 5, 7}),
          width = sizes.pick<int64_t>(6, {4, 5, 6, 7});
  std::string attention = "layers: " + sizes.number(2, {1, 2, 3}) +
                          ", hidden: " + std::to_string(heads * width) +
                          ", heads: " + std::to_string(heads) +
                          ", feed_forward: " + sizes.number(23, {7, 23, 31}) +
                          ", sequence: " + sizes.number(13, {7, 11, 13, 17}) +
                          ", dropout: " + sizes.text("0.1", {"0.1", "0"}) +
                          ", ";
  auto data = [&](const std::string &kind, const std::string &file) {
    return "data: {kind: " + kind + ", path: " + folder.file(file);
  };
  std::string images =
      data("idx", "images.idx") + ", labels: " + folder.file("labels.idx");
  if (family == "gpt")
    return "model: {kind: gpt, " + attention +
           "attention_dropout: " + sizes.text("0", {"0", "0.1"}) +
           ", vocabulary: " + sizes.number(37, {37, 41, 53}) +
           ", tied_head: " + sizes.text("true", {"true", "false"}) +
           ", biases: " + sizes.text("true", {"true", "false"}) +
           ", positions: " + sizes.text("learned", {"learned", "none"}) +
           "}\n" + training + data("tokens", "tokens.bin") + ", width: 16}\n";
  std::string vocabulary = sizes.number(101, {53, 101});
  if (family == "bert")
    return "model: {kind: bert, " + attention +
           "attention_dropout: 0.1, vocabulary: " + vocabulary + "}\n" +
           training + data("documents", "pages.txt") + "}\n";
  if (family == "classifier")
    return "model: {kind: classifier, " + attention +
           "vocabulary: " + vocabulary + "}\n" + training +
           data("tsv", "lines.tsv") + "}\n";
  if (family == "mlp")
    return "model: {kind: mlp, inputs: 1024, hidden: " +
           sizes.text("[33, 17, 9]", {"[33, 17, 9]", "[11]", "[7, 19]"}) +
           ", classes: " + sizes.number(5, {5, 7, 11}) + "}\n" + training +
           images + "}\n";
  return "model: {kind: resnet, depth: '18', image: 32, classes: 5, "
         "statistics_group: 4}\n" +
         training + images + "}\n";
}

/// Bytes that all devices receive in one run of a program, as the commands say.
static uint64_t countPlanned(const artifact::Index &index,
                             std::string_view name) {
  uint64_t bytes = 0;
  std::map<uint64_t, uint64_t> byMembers; // Each member's program says it.
  for (const artifact::Device *device : *index.devices())
    for (const artifact::Program *program :
         *index.images()->Get(device->image())->programs())
      if (program->name()->string_view() == name)
        for (const artifact::Phase *phase : *program->phases())
          for (const artifact::Command *command : *phase->commands())
            if (const auto *collective = command->action_as_Collective()) {
              uint64_t members = 1;
              for (uint32_t axis : *collective->axes())
                members *= index.mesh()->Get(axis)->size();
              byMembers[members] += command->bytes() * phase->repeat();
            }
  for (auto [members, sum] : byMembers) {
    EXPECT_EQ(sum % members, 0u);
    bytes += sum / members;
  }
  return bytes;
}

Outcome Zoo::train(const Model &model, const Plan &plan,
                   std::function<void(mlir::ModuleOp)> changeStep) {
  Outcome outcome;
  TemporaryFolder output;
  std::vector<std::string> keys = plan.overrides();
  keys.push_back("devices.threads=1");
  keys.push_back("training.precision=" + model.precision);
  // Whether a larger one overflows depends on the order of sums.
  if (model.precision == "f16")
    keys.push_back("training.loss_scale.initial=1024");
  keys.push_back(testDeviceOverride());
  CompileOptions options;
  options.changeStep = changeStep;
  options.cacheFolder = kernelCacheFolder();
  Diagnostics diagnostics;
  auto config = parseConfig(describe(model), "test.yaml", keys, diagnostics);
  if (!config) {
    outcome.refused = diagnostics.text();
    return outcome;
  }
  Status compiled = compileConfig(*config, options, output.file("m.kiln"));
  if (!compiled.ok()) {
    outcome.refused = compiled.message();
    return outcome;
  }
  Expected<Session> session = Session::load(output.file("m.kiln"));
  if (!session.ok()) {
    ADD_FAILURE() << session.status().message();
    return outcome;
  }
  TrainOptions train;
  train.logFile = -1;
  train.lossesPath = output.file("losses");
  Status status = session->reserve();
  EXPECT_TRUE(status.ok()) << status.message();
  const artifact::Index &index = session->index();
  for (uint32_t device = 0; device < index.devices()->size(); ++device) {
    const artifact::Image *image =
        index.images()->Get(index.devices()->Get(device)->image());
    EXPECT_EQ(session->reservedBytes(device),
              image->arena_bytes() + image->host_bytes());
  }
  EXPECT_TRUE(session->initialise(index.settings()->training()->seed()).ok());
  status = session->train(train);
  EXPECT_TRUE(status.ok()) << status.message();
  outcome.losses = readLosses(train.lossesPath);
  // Working copies are written once before the first step.
  outcome.plannedBytes = countPlanned(index, "train") * outcome.losses.size() +
                         countPlanned(index, "refresh");
  for (uint32_t device = 0; device < index.devices()->size(); ++device)
    outcome.receivedBytes += session->receivedBytes(device);
  return outcome;
}

const std::vector<Plan> &Zoo::plansOf(const Model &model) {
  auto [found, isNew] = plans.try_emplace(model.print());
  if (!isNew)
    return found->second;
  PlanSpace space;
  space.deviceCounts = {1, 2, 3, 4, 5, 6, 7, 8};
  space.sequenceParallel = {true, false};
  space.microBatches = {0, 1, 2, 3};
  if (model.family == "resnet") // Whole groups of norms.
    space.microBatches = {0, 4};
  found->second = space.list(configFromText(describe(model), {}));
  return found->second;
}

double Zoo::compare(const Model &model, const Outcome &outcome) {
  if (!testDeviceComputes()) {
    EXPECT_EQ(outcome.losses.size(), 5u);
    return 0;
  }
  std::vector<double> &wanted = onOneDevice[model.print()];
  if (wanted.empty())
    wanted = train(model, {}).losses;
  EXPECT_EQ(wanted.size(), 5u);
  if (outcome.losses.size() != wanted.size())
    return std::numeric_limits<double>::infinity();
  double greatest = 0;
  for (size_t step = 0; step < wanted.size(); ++step) {
    double deviation =
        std::abs(outcome.losses[step] - wanted[step]) / std::abs(wanted[step]);
    greatest = std::isfinite(deviation)
                   ? std::max(greatest, deviation)
                   : std::numeric_limits<double>::infinity();
  }
  return greatest;
}

} // namespace kiln::test
