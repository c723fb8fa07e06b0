// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Fingerprint.h"
#include "test/runtime/SampleArtifact.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

namespace kiln::test {
namespace {

TEST(Fingerprint, TellsFilesApart) {
  TemporaryFolder folder;
  std::set<std::string> seen;
  for (const char *text : {"", "a", "b", "ab"}) {
    writeFile(folder / "file", text);
    EXPECT_TRUE(seen.insert(fingerprintFile(folder / "file")).second) << text;
    EXPECT_EQ(fingerprintFile(folder / "file"),
              fingerprintFile(folder / "file"));
  }
  EXPECT_EQ(fingerprintFile(folder / "missing"), "unreadable");
  const std::string text = "a mapped file";
  writeFile(folder / "file", text);
  EXPECT_EQ(fingerprintFile(folder / "file"),
            fingerprintBytes(std::as_bytes(std::span(text))));
}

// Every byte of a file of several pieces counts; of a file with more pieces
// than are read, its size, the first byte and the last.
TEST(Fingerprint, ReadsLongFilesInPieces) {
  TemporaryFolder folder;
  std::string path = folder / "file";
  auto change = [&](uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('x');
  };
  auto make = [&](uint64_t size) {
    writeFile(path, "");
    std::filesystem::resize_file(path, size); // Takes no room.
  };
  constexpr uint64_t piece = 1 << 20;
  for (uint64_t size : {3 * piece + 5, 80 * piece + 7}) {
    make(size);
    std::set<std::string> seen = {fingerprintFile(path)};
    std::vector<uint64_t> places = {0, size - 1};
    if (size < 64 * piece)
      places.insert(places.end(), {piece - 1, piece, 3 * piece, 3 * piece + 1});
    for (uint64_t at : places) {
      make(size);
      change(at);
      EXPECT_TRUE(seen.insert(fingerprintFile(path)).second) << at;
    }
    make(size + 1);
    EXPECT_TRUE(seen.insert(fingerprintFile(path)).second);
  }
}

} // namespace
} // namespace kiln::test
