// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_RANDOM_INITIALISE_H
#define KILN_RUNTIME_RANDOM_INITIALISE_H

#include "runtime/artifact/Artifact_generated.h"

#include <cstddef>
#include <cstdint>

namespace kiln {

/// Writes the initial values of elements [begin, end) of the full variable to
/// `target`. They depend on seed, name and global index alone, so any sharding
/// and any number of workers give the same weights.
void initialiseRange(const artifact::Variable &variable, uint64_t seed,
                     uint64_t begin, uint64_t end, std::byte *target);

} // namespace kiln

#endif // KILN_RUNTIME_RANDOM_INITIALISE_H
