// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random numbers as a pure function of a counter and a key: Philox4x32-10 of
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
#ifndef KILN_RUNTIME_RANDOM_PHILOX_H
#define KILN_RUNTIME_RANDOM_PHILOX_H

#include <array>
#include <cstdint>
#include <string_view>

namespace kiln {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t first = uint64_t{0xD2511F53} * counter[0];
    uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A family of independent streams: the seed is the key, the stream's name half
/// of the counter, so that no two names or seeds share a number.
struct PhiloxStream {
  PhiloxKey key;
  uint32_t low, high;

  PhiloxStream(uint64_t seed, std::string_view name)
      : key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {
    uint64_t hash = 0xcbf29ce484222325; // FNV-1a: it only has to be unique.
    for (unsigned char byte : name)
      hash = (hash ^ byte) * 0x100000001b3;
    low = static_cast<uint32_t>(hash);
    high = static_cast<uint32_t>(hash >> 32);
  }

  PhiloxCounter block(uint64_t index) const {
    return philox({static_cast<uint32_t>(index),
                   static_cast<uint32_t>(index >> 32), low, high},
                  key);
  }
};

/// Uniform in [0, 1), with 53 bits.
inline double unitInterval(uint32_t low, uint32_t high) {
  uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

} // namespace kiln

#endif // KILN_RUNTIME_RANDOM_PHILOX_H
