// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_PEAKMEMORY_H
#define KILN_TOOLS_KILN_PEAKMEMORY_H

#include "runtime/artifact/Artifact_generated.h"

#include <nlohmann/json.hpp>

namespace kiln {

/// Buffers that are live where an image needs most memory, the largest kinds
/// first; buffers that differ only in their layer are one row.
void printPeak(const artifact::Image &image);

/// All of them.
nlohmann::ordered_json describePeak(const artifact::Image &image);

} // namespace kiln

#endif
