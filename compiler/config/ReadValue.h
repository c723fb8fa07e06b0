// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_READ_VALUE_H
#define KILN_COMPILER_CONFIG_READ_VALUE_H

#include "compiler/config/Schema.h"
#include "compiler/config/YamlTree.h"

namespace kiln {

/// Stores the written value of a key in the config; reports a value that is
/// ill-typed, out of range, unknown or not available yet and returns false.
/// Relative paths written in the file start at `folder`.
bool readValue(const Key &key, const YamlNode &node, const std::string &folder,
               Config &config, Diagnostics &diagnostics);

/// The value that a key has, as it would be written; empty when it is absent.
std::string printValue(const Key &key, const Config &config);

/// Cores that this process may run on.
int64_t availableCores();

} // namespace kiln

#endif
