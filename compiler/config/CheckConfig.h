// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_CHECK_CONFIG_H
#define KILN_COMPILER_CONFIG_CHECK_CONFIG_H

#include "compiler/config/Config.h"

#include <map>
#include <string>
#include <string_view>

namespace kiln {

/// State of a key that has a value.
struct KeyState {
  Position position;
  bool isWritten; // and not a default
  bool isValid;   // an invalid value has been reported already
};
using KeyStates = std::map<std::string, KeyState, std::less<>>;

/// Fills defaults that depend on other keys, then reports values that are legal
/// each by itself but not together. Keys that were reported are not checked
/// again.
void checkConfig(Config &config, const KeyStates &states, Position top,
                 Diagnostics &diagnostics);

} // namespace kiln

#endif
