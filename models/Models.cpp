// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

namespace kiln {

Model findModel(ModelKind kind) {
  switch (kind) {
  case ModelKind::Bert:
    return bert;
  case ModelKind::Classifier:
    return classifier;
  case ModelKind::Gpt:
    return gpt;
  case ModelKind::Mlp:
    return mlp;
  case ModelKind::Resnet:
    return resnet;
  case ModelKind::File:
    return nullptr;
  }
  return nullptr;
}

PublicNames publicNames(const ModelConfig &config) {
  switch (config.kind) {
  case ModelKind::Bert:
    return bertNames(config);
  case ModelKind::Gpt:
    return gptNames(config);
  case ModelKind::Resnet:
    return resnetNames(config);
  case ModelKind::Classifier:
  case ModelKind::Mlp:
  case ModelKind::File:
    return {};
  }
  return {};
}

} // namespace kiln
