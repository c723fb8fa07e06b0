// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/shard/PlanCase.h"
#include "test/compiler/TrainedModel.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

namespace kiln::test {

std::vector<std::string> Plan::overrides() const {
  std::vector<std::string> keys = {
      "devices.count=" + std::to_string(data * tensor),
      "devices.mesh={data: " + std::to_string(data) +
          ", tensor: " + std::to_string(tensor) + "}",
      "devices.zero=" + std::to_string(zero),
      "devices.threads=1",
      "devices.offload=" + offload,
      "devices.recompute=" + recompute,
      std::string("devices.sequence_parallel=") +
          (isSequenceParallel ? "true" : "false"),
      "training.micro_batch=" +
          (microBatch ? std::to_string(microBatch) : "none")};
  if (!speeds.empty()) {
    std::string list;
    for (double speed : speeds)
      list += (list.empty() ? "" : ", ") + std::to_string(speed);
    keys.push_back("devices.speeds=[" + list + "]");
  }
  return keys;
}

std::string Plan::print() const {
  std::string text;
  for (const std::string &key : overrides())
    text += key + " ";
  return text;
}

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

// A large epsilon, because gradients that are rounding alone must not become
// steps; for the same reason no Adam where norms of few values make much of
// small differences.
std::string Zoo::describe(const std::string &family) const {
  bool isResnet = family == "resnet";
  std::string optimizer =
      isResnet ? "{kind: sgd, learning_rate: 1e-4, momentum: 0.9}"
               : "{kind: adamw, learning_rate: 2e-3, epsilon: 1e-4, "
                 "weight_decay: 0.1}";
  std::string training =
      std::string("training: {steps: 5, clip_norm: 0.5, global_batch: ") +
      (isResnet ? "12" : "11") + ", optimizer: " + optimizer + "}\n";
  std::string attention = "layers: 2, hidden: 18, heads: 3, feed_forward: 23, "
                          "sequence: 13, dropout: 0.1, ";
  auto data = [&](const std::string &kind, const std::string &file) {
    return "data: {kind: " + kind + ", path: " + folder.file(file);
  };
  std::string images =
      data("idx", "images.idx") + ", labels: " + folder.file("labels.idx");
  if (family == "gpt")
    return "model: {kind: gpt, " + attention +
           "vocabulary: 37, tied_head: true}\n" + training +
           data("tokens", "tokens.bin") + ", width: 16}\n";
  if (family == "bert")
    return "model: {kind: bert, " + attention +
           "attention_dropout: 0.1, vocabulary: 101}\n" + training +
           data("documents", "pages.txt") + "}\n";
  if (family == "classifier")
    return "model: {kind: classifier, " + attention + "vocabulary: 101}\n" +
           training + data("tsv", "lines.tsv") + "}\n";
  if (family == "mlp")
    return "model: {kind: mlp, inputs: 1024, hidden: [33, 17, 9], classes: "
           "5}\n" +
           training + images + "}\n";
  return "model: {kind: resnet, depth: '18', image: 32, classes: 5, "
         "statistics_group: 4}\n" +
         training + images + "}\n";
}

/// Bytes that all devices receive in one step, as the commands say.
static uint64_t countPlanned(const artifact::Index &index) {
  uint64_t bytes = 0;
  std::map<uint64_t, uint64_t> byMembers; // Each member's program says it.
  for (const artifact::Device *device : *index.devices())
    for (const artifact::Program *program :
         *index.images()->Get(device->image())->programs())
      if (program->name()->string_view() == "train")
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

Outcome Zoo::train(const std::string &family, const std::string &precision,
                   const Plan &plan,
                   std::function<void(mlir::ModuleOp)> changeStep) {
  Outcome outcome;
  TemporaryFolder output;
  std::vector<std::string> keys = plan.overrides();
  keys.push_back("training.precision=" + precision);
  CompileOptions options;
  options.changeStep = changeStep;
  Diagnostics diagnostics;
  auto config = parseConfig(describe(family), "test.yaml", keys, diagnostics);
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
  EXPECT_TRUE(session->initialise(index.training()->seed()).ok());
  status = session->train(train);
  EXPECT_TRUE(status.ok()) << status.message();
  outcome.losses = readLosses(train.lossesPath);
  outcome.plannedBytes = countPlanned(index) * outcome.losses.size();
  for (uint32_t device = 0; device < index.devices()->size(); ++device)
    outcome.receivedBytes += session->receivedBytes(device);
  return outcome;
}

double Zoo::compare(const std::string &family, const std::string &precision,
                    const Outcome &outcome) {
  std::vector<double> &wanted = onOneDevice[family + precision];
  if (wanted.empty())
    wanted = train(family, precision, {}).losses;
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
