// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_OVERRIDES_H
#define KILN_TOOLS_KILN_OVERRIDES_H

#include <string>
#include <vector>

namespace kiln {

/// The keys of a command line that cannot be had together, one error a line:
/// a key given twice, also as part of a map, or a length of the training beside
/// `--steps`. In a file a key twice is an error as well. Empty for none.
std::string findConflicts(const std::vector<std::string> &overrides,
                          bool hasSteps);

} // namespace kiln

#endif // KILN_TOOLS_KILN_OVERRIDES_H
