// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_COMPILER_CONFIG_CONFIG_TEXTS_H
#define KILN_TEST_COMPILER_CONFIG_CONFIG_TEXTS_H

#include "compiler/config/Config.h"

#include <string>
#include <vector>

namespace kiln::test {

/// A valid config whose every key is written on a line of its own.
inline const std::string gptText = R"(model:
  kind: gpt
  layers: 2
  hidden: 256
  heads: 8
  feed_forward: 256
  sequence: 64
  vocabulary: 256
  tied_head: false
  biases: true
  positions: learned
training:
  global_batch: 8
  micro_batch: 4
  steps: 400
  seed: 0
  precision: f32
  clip_norm: 1.0
  optimizer:
    kind: adamw
    learning_rate: 1e-3
    betas: [0.9, 0.95]
    epsilon: 1e-8
    weight_decay: 0.1
  schedule: {kind: cosine, warmup: 10, minimum: 1e-4}
data: {kind: text, path: corpus.txt, tokenizer: bytes, shuffle: true}
devices:
  kind: cpu
  count: 1
  threads: 2
  memory: 2GiB
  mesh: auto
  zero: auto
  offload: auto
  recompute: auto
log: {every: 20}
)";

/// The least that each kind of model needs.
inline const std::string smallGptText =
    "model: {kind: gpt, layers: 1, hidden: 8, heads: 2, sequence: 4, "
    "vocabulary: 16}\ntraining: {global_batch: 2, steps: 1}\n"
    "data: {kind: none}\n";
inline const std::string smallBertText =
    "model: {kind: bert, layers: 1, hidden: 8, heads: 2, sequence: 21, "
    "vocabulary: 16}\ntraining: {global_batch: 2, steps: 1}\n"
    "data: {kind: none}\n";
inline const std::string smallResnetText =
    "model: {kind: resnet, depth: 18}\n"
    "training: {global_batch: 64, steps: 1}\ndata: {kind: none}\n";
inline const std::string smallClassifierText =
    "model: {kind: classifier, layers: 1, hidden: 8, heads: 2, sequence: 4, "
    "vocabulary: 16}\ntraining: {global_batch: 2, steps: 1}\n"
    "data: {kind: none}\n";
inline const std::string smallMlpText =
    "model: {kind: mlp}\ntraining: {global_batch: 2, epochs: 1}\n"
    "data: {kind: idx, path: images, labels: digits}\n";
inline const std::string smallFileText =
    "model: {kind: file, path: x.mlir}\n"
    "training: {global_batch: 2, steps: 1}\ndata: {kind: none}\n";

/// The errors of a config, as lines.
inline std::vector<std::string>
errorsOf(const std::string &text,
         const std::vector<std::string> &overrides = {}) {
  Diagnostics diagnostics;
  std::optional<Config> config =
      parseConfig(text, "a.yaml", overrides, diagnostics);
  std::vector<std::string> lines = diagnostics.lines();
  // A config with errors must not be usable, nor one without be refused.
  if (config.has_value() != lines.empty())
    lines.push_back("config and errors contradict each other");
  return lines;
}

/// A copy of the text with the first occurrence of a piece replaced.
inline std::string replaced(std::string text, const std::string &piece,
                            const std::string &by) {
  size_t at = text.find(piece);
  return at == text.npos ? "piece not found"
                         : text.replace(at, piece.size(), by);
}

} // namespace kiln::test

#endif
