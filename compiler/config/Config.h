// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_CONFIG_H
#define KILN_COMPILER_CONFIG_CONFIG_H

#include "compiler/config/Choices.h"
#include "compiler/config/Diagnostics.h"
#include "compiler/plan/Plan.h"
#include "compiler/precision/PrecisionPolicy.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

/// A decision that a config may leave to the compiler; without a value it is
/// `auto`.
template <typename T> using Requested = std::optional<T>;

/// training.micro_batch as it was asked for.
struct MicroBatchRequest {
  enum class Kind {
    None,    // no accumulation
    Number,  // `least` samples
    Auto,    // a divisor of a replica's share
    Explore, // any size
    Range,   // any size from `least` to `most`
  };
  Kind kind = Kind::None;
  int64_t least = 0;
  int64_t most = 0;

  static MicroBatchRequest ofSize(int64_t samples) {
    return {Kind::Number, samples, samples};
  }
  bool operator==(const MicroBatchRequest &) const = default;
};

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

/// Of the loss where gradients are f16.
struct LossScaleConfig {
  double initial = 65536;
  int64_t growthSteps = 2000; ///< Finite steps in a row until it doubles.
};

struct TrainingConfig {
  int64_t globalBatch = 0;
  MicroBatchRequest microBatch;
  int64_t steps = 0;  // 0: given by epochs
  int64_t epochs = 0; // 0: given by steps
  int64_t seed = 0;
  PrecisionPolicy precision;
  LossScaleConfig lossScale;
  double clipNorm = 0; // 0: off
  std::string init;    // file of initial weights; empty: they are drawn
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
};

struct DataConfig {
  DataKind kind = DataKind::None;
  std::string path;
  std::string labels;     // idx
  std::string tokenizer;  // text
  std::string vocabulary; // documents, tsv; empty: that of the file
  int64_t width = 0;      // bits of a token; tokens
  bool shuffle = true;
};

/// Of a section that may be left out: `none` forbids what leaving it out may
/// not.
enum class Presence { Absent, None, Given };

/// Loss and accuracy on held-out data; all other settings are those of `data`.
struct EvaluationConfig {
  Presence presence = Presence::Absent;
  int64_t every = 0;     // steps; 0: after each epoch
  std::string path;      // empty: the end of the data is held out
  std::string labels;    // idx
  double fraction = 0.1; // of the data; without a path
};

/// Decisions stay requests here: `resolvePlan` turns them into a plan.
struct DevicesConfig {
  DeviceKind kind = DeviceKind::Cpu;
  int64_t count = 1;
  int64_t threads = 1; // workers of a device; `auto` is resolved
  int64_t memory = 0;  // bytes of a device; 0: no limit
  Requested<MeshShape> mesh;
  Requested<int64_t> zero; // stage
  Requested<Offload> offload;
  Requested<Recompute> recompute;
  bool isSequenceParallel = true;
  int64_t bucketBytes = 0;    // most of one collective; 0: the pass decides
  std::vector<double> speeds; // one per device or replica; empty: all alike
};

/// Absent: the last state is saved, and a later run does not begin from it
/// unasked.
struct CheckpointConfig {
  Presence presence = Presence::Absent;
  int64_t every = 0;
  int64_t keep = 0;
};

struct LogConfig {
  int64_t every = 20;
};

/// A complete config with every default filled in: the compiler's only input
/// beside the model file it may name. Requests for a plan are as written.
struct Config {
  ModelConfig model;
  TrainingConfig training;
  DataConfig data;
  EvaluationConfig evaluation;
  DevicesConfig devices;
  LogConfig log;
  CheckpointConfig checkpoint;

  /// Canonical YAML: every key that applies, in the schema's order. Equal
  /// configs print equal text, and the text loads as the same config.
  std::string print() const;

  /// The same without the keys that no program depends on: configs that print
  /// equal text here compile to the same program.
  std::string printProgram() const;

  /// Paths of the files that it names, by key.
  std::map<std::string, std::string> files() const;
};

/// Reads a config file and applies overrides (`key.path=value`) to it. Paths in
/// the file are taken relative to its folder, those in overrides relative to
/// the working directory; the config stores absolute paths, so that an artifact
/// runs from any folder.
/// Returns nothing when there was an error; all errors are in `diagnostics`.
/// Never throws.
std::optional<Config> loadConfig(const std::string &path,
                                 const std::vector<std::string> &overrides,
                                 Diagnostics &diagnostics);

/// The same for text that does not come from a file; errors call it `name`,
/// whose folder relative paths start at.
std::optional<Config> parseConfig(const std::string &text,
                                  const std::string &name,
                                  const std::vector<std::string> &overrides,
                                  Diagnostics &diagnostics);

} // namespace kiln

#endif
