// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_CONVERTELEMENTS_H
#define KILN_RUNTIME_CHECKPOINT_CONVERTELEMENTS_H

#include "runtime/artifact/Artifact_generated.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace kiln {

/// F64, F32, F16 or BF16.
bool isFloating(std::string_view dtype);

/// Converts floating elements to another type, rounding to nearest. Both spans
/// hold the same number of elements.
void convertElements(std::string_view dtype, std::span<const std::byte> source,
                     artifact::ElementType type, std::span<std::byte> target);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_CONVERTELEMENTS_H
