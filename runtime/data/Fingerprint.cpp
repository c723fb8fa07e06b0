// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Fingerprint.h"
#include "runtime/artifact/Sha256.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

namespace kiln {

static constexpr uint64_t pieceBytes = uint64_t{1} << 20, mostPieces = 64;

/// `read(begin, count)` gives a piece, and fewer bytes after a failure.
template <typename Read>
static std::string fingerprint(uint64_t size, Read read) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(&size, 1)));
  uint64_t pieces = std::min(mostPieces, (size + pieceBytes - 1) / pieceBytes);
  for (uint64_t number = 0; number < pieces; ++number) {
    // The pieces of a short file cover it.
    uint64_t begin = pieces < mostPieces
                         ? number * pieceBytes
                         : (size - pieceBytes) / (mostPieces - 1) * number;
    if (number + 1 == pieces && size >= pieceBytes)
      begin = size - pieceBytes;
    uint64_t count = std::min(pieceBytes, size - begin);
    std::span<const std::byte> piece = read(begin, count);
    if (piece.size() != count)
      return "unreadable";
    hash.add(piece);
  }
  return printDigest(hash.finish());
}

std::string fingerprintFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::streamoff end = file.tellg();
  if (!file || end < 0)
    return "unreadable";
  std::vector<char> bytes(pieceBytes);
  return fingerprint(
      static_cast<uint64_t>(end), [&](uint64_t begin, uint64_t count) {
        file.seekg(static_cast<std::streamoff>(begin));
        file.read(bytes.data(), static_cast<std::streamsize>(count));
        return std::as_bytes(
            std::span(bytes.data(), static_cast<size_t>(file.gcount())));
      });
}

std::string fingerprintBytes(std::span<const std::byte> bytes) {
  return fingerprint(bytes.size(), [&](uint64_t begin, uint64_t count) {
    return bytes.subspan(begin, count);
  });
}

} // namespace kiln
