// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_CONFIGCHANGES_H
#define KILN_RUNTIME_CHECKPOINT_CONFIGCHANGES_H

#include <string>
#include <string_view>

namespace kiln {

/// One line for each key that has another value in one canonical text of a
/// config than in the other: "\n  training.steps was 40, is 60". Empty for
/// texts with equal keys.
std::string describeChanges(std::string_view before, std::string_view after);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_CONFIGCHANGES_H
