// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_CONFIG_H
#define KILN_COMPILER_CONFIG_CONFIG_H

#include "compiler/config/Diagnostics.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

enum class ModelKind { Gpt, Bert, Resnet, Classifier, Mlp, File };
enum class Positions { Learned, None };
enum class Precision { F32, F64, BF16 };
enum class OptimizerKind { Adam, AdamW, Sgd };
enum class ScheduleKind { Constant, Cosine };
enum class DataKind { Text, Tokens, Documents, Tsv, Idx, None };
enum class DeviceKind { Cpu, Dry };
enum class Offload { None, Optimizer };
enum class Recompute { None, Attention, Full };

/// Members that the kind does not use keep their initial values.
struct ModelConfig {
  ModelKind kind = ModelKind::Gpt;
  // gpt, bert, classifier
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t feedForward = 0;
  int64_t sequence = 0;
  int64_t vocabulary = 0;
  int64_t maximumPositions = 0;
  double dropout = 0;
  double attentionDropout = 0;
  // gpt
  bool tiedHead = true;
  bool biases = true;
  Positions positions = Positions::Learned;
  // bert
  int64_t predictions = 0; // masked tokens of a sample, at most
  // resnet, classifier, mlp
  int64_t classes = 0;
  // resnet
  int64_t depth = 0;
  int64_t channels = 0;
  int64_t image = 0;           // height and width
  int64_t statisticsGroup = 0; // samples that are normalised together
  double momentum = 0;         // of the running statistics
  // mlp
  std::vector<int64_t> hiddenSizes;
  int64_t inputs = 0;
  // file
  std::string path;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::AdamW;
  double learningRate = 0;
  std::vector<double> betas; // two; adam and adamw
  double epsilon = 0;        // adam and adamw
  double weightDecay = 0;
  double momentum = 0; // sgd
};

/// Factor on the learning rate: rises linearly over `warmup` steps, then is
/// constant, or falls as a cosine to `minimum` (a learning rate) at `steps`.
/// A run shorter than its warm-up is legal and ends while the rate still rises:
/// people cut `training.steps` on the command line to try things.
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::Constant;
  int64_t warmup = 0;
  int64_t steps = 0;  // cosine
  double minimum = 0; // cosine
};

struct TrainingConfig {
  int64_t globalBatch = 0;
  int64_t microBatch = 0; // as written; 0: none, the whole batch at once
  int64_t steps = 0;      // 0: given by epochs
  int64_t epochs = 0;     // 0: given by steps
  int64_t seed = 0;
  Precision precision = Precision::F32;
  double clipNorm = 0; // 0: off
  std::string init;    // file of initial weights; empty: they are drawn
  OptimizerConfig optimizer;
  ScheduleConfig schedule;

  /// Samples of one micro-batch of a replica that has `share` samples of the
  /// batch; the last of a step may be smaller.
  int64_t microBatchSize(int64_t share) const {
    return microBatch ? std::min(microBatch, share) : share;
  }
  /// Micro-batches of one step of such a replica.
  int64_t accumulation(int64_t share) const {
    return (share + microBatchSize(share) - 1) / microBatchSize(share);
  }
};

struct DataConfig {
  DataKind kind = DataKind::None;
  std::string path;
  std::string labels;    // idx
  std::string tokenizer; // text
  int64_t width = 0;     // bits of a token; tokens
  bool shuffle = true;
};

/// Loss and accuracy on data held out; what it does not say is as in `data`.
struct EvaluationConfig {
  bool isGiven = false;
  int64_t every = 0;     // steps; 0: after each epoch
  std::string path;      // empty: the end of the data is held out
  std::string labels;    // idx
  double fraction = 0.1; // of the data; without a path
};

/// Named axes over the devices; device = data * (size of tensor) + tensor.
struct MeshConfig {
  int64_t data = 1;
  int64_t tensor = 1;
};

/// Every `auto` is resolved.
struct DevicesConfig {
  DeviceKind kind = DeviceKind::Cpu;
  int64_t count = 1;
  int64_t threads = 1; // workers of a device
  int64_t memory = 0;  // bytes of a device; 0: no limit
  MeshConfig mesh;     // of `count` devices
  int64_t zero = 0;    // stage
  Offload offload = Offload::None;
  Recompute recompute = Recompute::None;
  bool isSequenceParallel = true;
  std::vector<double> speeds; // one per replica; empty: all are alike
};

struct CheckpointConfig {
  bool isGiven = false;
  int64_t every = 0;
  int64_t keep = 0;
};

struct LogConfig {
  int64_t every = 20;
};

/// A whole config with every default filled in: the compiler's only input
/// beside the model file it may name.
struct Config {
  ModelConfig model;
  TrainingConfig training;
  DataConfig data;
  EvaluationConfig evaluation;
  DevicesConfig devices;
  LogConfig log;
  CheckpointConfig checkpoint;

  /// Samples of the batch that each replica of the mesh computes: in proportion
  /// to the speeds, whole statistics groups.
  std::vector<int64_t> shares() const;

  /// Canonical YAML: every key that applies, in the schema's order. Equal
  /// configs print equal text, and the text loads as the same config.
  std::string print() const;
};

/// Reads a config file and applies overrides (`key.path=value`) to it. Paths in
/// the file are taken relative to its folder, those in overrides relative to
/// the working directory; the config has them absolute, so that an artifact
/// runs from any folder.
/// Returns nothing when there was an error; all errors are in `diagnostics`.
/// Never throws.
std::optional<Config> loadConfig(const std::string &path,
                                 const std::vector<std::string> &overrides,
                                 Diagnostics &diagnostics);

/// The same for text that does not come from a file; `name` stands for it in
/// errors, and its folder is where paths start.
std::optional<Config> parseConfig(const std::string &text,
                                  const std::string &name,
                                  const std::vector<std::string> &overrides,
                                  Diagnostics &diagnostics);

} // namespace kiln

#endif
