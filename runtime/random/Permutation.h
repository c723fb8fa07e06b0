// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_RANDOM_PERMUTATION_H
#define KILN_RUNTIME_RANDOM_PERMUTATION_H

#include <cstdint>

namespace kiln {

/// Maps sample `index` of [0, size) to its position in this epoch: a bijection
/// that is computed and not stored, so there is nothing to save, and any device
/// can ask for any sample.
uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t size);

} // namespace kiln

#endif // KILN_RUNTIME_RANDOM_PERMUTATION_H
