// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_MODELS_MODELS_H
#define KILN_MODELS_MODELS_H

#include "compiler/frontend/ModelBuilder.h"

namespace kiln {

/// A model family: given its part of the config, its loss on one batch.
using Model = Loss (*)(ModelBuilder &, const ModelConfig &);

Loss gpt(ModelBuilder &, const ModelConfig &);
Loss mlp(ModelBuilder &, const ModelConfig &);

/// The family of this kind; null for `file`, which is text.
Model findModel(ModelKind kind);

} // namespace kiln

#endif // KILN_MODELS_MODELS_H
