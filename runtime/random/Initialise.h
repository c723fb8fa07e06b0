// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_RANDOM_INITIALISE_H
#define KILN_RUNTIME_RANDOM_INITIALISE_H

#include "runtime/artifact/Artifact_generated.h"

#include <cstddef>
#include <cstdint>

namespace kiln {

/// Writes the initial values of elements [begin, end) of a whole variable to
/// `target`. They depend on seed, name and index alone, so any split
/// over devices or workers gives the same weights.
void initialiseRange(const artifact::Variable &variable, uint64_t seed,
                     uint64_t begin, uint64_t end, std::byte *target);

} // namespace kiln

#endif // KILN_RUNTIME_RANDOM_INITIALISE_H
