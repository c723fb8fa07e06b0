// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_MODELS_MODELS_H
#define KILN_MODELS_MODELS_H

#include "compiler/frontend/ModelBuilder.h"

namespace kiln {

/// A model family: given its part of the config, writes its losses on one
/// batch.
using Model = void (*)(ModelBuilder &, const ModelConfig &);

void bert(ModelBuilder &, const ModelConfig &);
void classifier(ModelBuilder &, const ModelConfig &);
void gpt(ModelBuilder &, const ModelConfig &);
void mlp(ModelBuilder &, const ModelConfig &);
void resnet(ModelBuilder &, const ModelConfig &);

/// The family of this kind; null for `file`, which is text.
Model findModel(ModelKind kind);

} // namespace kiln

#endif // KILN_MODELS_MODELS_H
