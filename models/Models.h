// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_MODELS_MODELS_H
#define KILN_MODELS_MODELS_H

#include "compiler/frontend/ModelBuilder.h"

#include <string>
#include <utility>
#include <vector>

namespace kiln {

/// A model family: given its section of the config, writes its losses on one
/// batch.
using Model = void (*)(ModelBuilder &, const ModelConfig &);

void bert(ModelBuilder &, const ModelConfig &);
void classifier(ModelBuilder &, const ModelConfig &);
void gpt(ModelBuilder &, const ModelConfig &);
void mlp(ModelBuilder &, const ModelConfig &);
void resnet(ModelBuilder &, const ModelConfig &);

/// Names of a family's variables in public checkpoints, where they differ.
struct PublicNames {
  /// Optional before the names of a file that is read; always written.
  std::string prefix;
  /// Beginnings of names that never have the prefix.
  std::vector<std::string> bare;
  /// Suffixes of the names of buffers, which are no weights.
  std::vector<std::string> ignored;
  /// Second names of variables: (name, variable).
  std::vector<std::pair<std::string, std::string>> aliases;
  /// Suffixes that differ in some files: (theirs, ours).
  std::vector<std::pair<std::string, std::string>> renamed;
};

PublicNames bertNames(const ModelConfig &);
PublicNames gptNames(const ModelConfig &);
PublicNames resnetNames(const ModelConfig &);

PublicNames publicNames(const ModelConfig &);

/// The family of this kind; null for `file`, which is text.
Model findModel(ModelKind kind);

} // namespace kiln

#endif // KILN_MODELS_MODELS_H
