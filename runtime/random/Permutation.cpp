// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/random/Permutation.h"
#include "runtime/random/Philox.h"

#include <bit>

namespace kiln {

// A Feistel network permutes the numbers of 2h bits whatever its round function
// is. Numbers beyond the size are sent through again until one falls inside,
// which keeps it a bijection; h is the least possible, so that takes four tries
// at most on average.
uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t size) {
  if (size <= 1)
    return 0;
  constexpr uint32_t rounds = 6;
  const PhiloxStream stream(seed, "sample order");
  const unsigned half =
      (static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint32_t round = 0; round < rounds; ++round) {
      // h is at most 32, so the right half is one word of the counter.
      PhiloxCounter bits =
          philox({static_cast<uint32_t>(right),
                  round ^ static_cast<uint32_t>(epoch >> 32) << 3,
                  stream.low ^ static_cast<uint32_t>(epoch), stream.high},
                 stream.key);
      uint64_t mixed = left ^ (bits[0] & mask);
      left = right;
      right = mixed;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

} // namespace kiln
