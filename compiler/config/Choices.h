// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The enumerations of the config, each with the words that it is written with.
// An enumerator without a word does not compile (-Wswitch), and the schema
// takes its choices from here.
#ifndef KILN_COMPILER_CONFIG_CHOICES_H
#define KILN_COMPILER_CONFIG_CHOICES_H

#include <optional>
#include <string_view>

namespace kiln {

enum class ModelKind { Gpt, Bert, Resnet, Classifier, Mlp, File };
constexpr std::string_view wordOf(ModelKind kind) {
  switch (kind) {
  case ModelKind::Gpt:
    return "gpt";
  case ModelKind::Bert:
    return "bert";
  case ModelKind::Resnet:
    return "resnet";
  case ModelKind::Classifier:
    return "classifier";
  case ModelKind::Mlp:
    return "mlp";
  case ModelKind::File:
    return "file";
  }
  return "";
}

enum class Positions { Learned, None };
constexpr std::string_view wordOf(Positions positions) {
  switch (positions) {
  case Positions::Learned:
    return "learned";
  case Positions::None:
    return "none";
  }
  return "";
}

enum class FloatFormat { F32, F64, BF16, F16 };
constexpr std::string_view wordOf(FloatFormat format) {
  switch (format) {
  case FloatFormat::F32:
    return "f32";
  case FloatFormat::F64:
    return "f64";
  case FloatFormat::BF16:
    return "bf16";
  case FloatFormat::F16:
    return "f16";
  }
  return "";
}

enum class OptimizerKind { Adam, AdamW, Sgd };
constexpr std::string_view wordOf(OptimizerKind kind) {
  switch (kind) {
  case OptimizerKind::Adam:
    return "adam";
  case OptimizerKind::AdamW:
    return "adamw";
  case OptimizerKind::Sgd:
    return "sgd";
  }
  return "";
}

enum class ScheduleKind { Constant, Cosine };
constexpr std::string_view wordOf(ScheduleKind kind) {
  switch (kind) {
  case ScheduleKind::Constant:
    return "constant";
  case ScheduleKind::Cosine:
    return "cosine";
  }
  return "";
}

enum class DataKind { Text, Tokens, Documents, Tsv, Idx, None };
constexpr std::string_view wordOf(DataKind kind) {
  switch (kind) {
  case DataKind::Text:
    return "text";
  case DataKind::Tokens:
    return "tokens";
  case DataKind::Documents:
    return "documents";
  case DataKind::Tsv:
    return "tsv";
  case DataKind::Idx:
    return "idx";
  case DataKind::None:
    return "none";
  }
  return "";
}

enum class DeviceKind { Cpu, Dry };
constexpr std::string_view wordOf(DeviceKind kind) {
  switch (kind) {
  case DeviceKind::Cpu:
    return "cpu";
  case DeviceKind::Dry:
    return "dry";
  }
  return "";
}

enum class Offload { None, Optimizer };
constexpr std::string_view wordOf(Offload offload) {
  switch (offload) {
  case Offload::None:
    return "none";
  case Offload::Optimizer:
    return "optimizer";
  }
  return "";
}

enum class Recompute { None, Attention, Full };
constexpr std::string_view wordOf(Recompute recompute) {
  switch (recompute) {
  case Recompute::None:
    return "none";
  case Recompute::Attention:
    return "attention";
  case Recompute::Full:
    return "full";
  }
  return "";
}

/// Enumerators are numbered from 0 without gaps.
template <typename Enum> constexpr int countWords() {
  int count = 0;
  while (!wordOf(static_cast<Enum>(count)).empty())
    ++count;
  return count;
}

/// The enumerator that is written with a word.
template <typename Enum>
constexpr std::optional<Enum> findWord(std::string_view word) {
  for (int i = 0; i < countWords<Enum>(); ++i)
    if (wordOf(static_cast<Enum>(i)) == word)
      return static_cast<Enum>(i);
  return std::nullopt;
}

} // namespace kiln

#endif
