// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_ARTIFACTSETTINGS_H
#define KILN_TOOLS_KILN_ARTIFACTSETTINGS_H

#include "compiler/config/Config.h"
#include "runtime/artifact/Artifact.h"

#include <string>
#include <vector>

namespace kiln {

/// The container of an artifact with the settings of a config, which compiles
/// to the same program: the bytes that compiling the config would give.
std::vector<std::byte> packWithSettings(const Artifact &artifact,
                                        const Config &config);

/// The config of an artifact with overrides (`key.path=value`) of its settings.
/// The failure is all errors, one a line, as loading a config reports them.
Expected<Config> changeSettings(const Artifact &artifact,
                                std::vector<std::string> overrides);

} // namespace kiln

#endif
