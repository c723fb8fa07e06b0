// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Fingerprint.h"
#include "runtime/artifact/Sha256.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

namespace kiln {

std::string fingerprintFile(const std::string &path) {
  constexpr uint64_t piece = uint64_t{1} << 20, most = 64;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::streamoff end = file.tellg();
  if (!file || end < 0)
    return "unreadable";
  auto size = static_cast<uint64_t>(end);
  Sha256 hash;
  hash.add(std::as_bytes(std::span(&size, 1)));
  std::vector<char> bytes(piece);
  uint64_t pieces = std::min(most, (size + piece - 1) / piece);
  for (uint64_t number = 0; number < pieces; ++number) {
    // The pieces of a short file cover it.
    uint64_t begin =
        pieces < most ? number * piece : (size - piece) / (most - 1) * number;
    if (number + 1 == pieces && size >= piece)
      begin = size - piece;
    uint64_t count = std::min(piece, size - begin);
    file.seekg(static_cast<std::streamoff>(begin));
    if (!file.read(bytes.data(), static_cast<std::streamsize>(count)))
      return "unreadable";
    hash.add(std::as_bytes(std::span(bytes.data(), count)));
  }
  return printDigest(hash.finish());
}

} // namespace kiln
