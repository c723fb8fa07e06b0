// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

namespace kiln {

Model findModel(ModelKind kind) {
  switch (kind) {
  case ModelKind::Gpt:
    return gpt;
  case ModelKind::Mlp:
    return mlp;
  case ModelKind::Bert:
  case ModelKind::Resnet:
  case ModelKind::Classifier: // Not available yet: the config refuses them.
  case ModelKind::File:
    return nullptr;
  }
  return nullptr;
}

} // namespace kiln
