// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_MODELNAMES_H
#define KILN_TOOLS_KILN_MODELNAMES_H

#include <string>

namespace kiln {

/// Text with `*` for the numbers in names of the model, so that layers that are
/// alike have one name: h.3.mlp becomes h.*.mlp.
std::string nameInAnyLayer(const std::string &text);

} // namespace kiln

#endif // KILN_TOOLS_KILN_MODELNAMES_H
