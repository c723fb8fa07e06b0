// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The settings of a config as the artifact describes them. Apart from the
// writer of artifacts: data are opened before anything is compiled, and the
// settings of an artifact are replaced without compiling.
#ifndef KILN_COMPILER_CONFIG_SETTINGS_H
#define KILN_COMPILER_CONFIG_SETTINGS_H

#include "compiler/config/Config.h"
#include "runtime/artifact/Artifact_generated.h"

#include <memory>

namespace kiln {

std::unique_ptr<artifact::DataT> describeData(const Config &config);

/// Null if the config asks for no evaluation.
std::unique_ptr<artifact::EvaluationT> describeHeldOut(const Config &config);

/// All keys that are settings, see Key::isSetting.
std::unique_ptr<artifact::SettingsT> describeSettings(const Config &config);

} // namespace kiln

#endif
