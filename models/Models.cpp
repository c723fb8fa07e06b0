// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

namespace kiln {

Model findModel(ModelKind kind) {
  switch (kind) {
  case ModelKind::Gpt:
    return gpt;
  case ModelKind::Mlp:
    return mlp;
  case ModelKind::File:
    return nullptr;
  }
  return nullptr;
}

} // namespace kiln
