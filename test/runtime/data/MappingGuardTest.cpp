// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/MappingGuard.h"
#include "test/runtime/data/Datasets.h"

#include <csignal>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln::test {

/// A file of some pages, mapped for reading.
class MappedPages {
public:
  explicit MappedPages(size_t pages)
      : bytes_(pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
        file_(std::string(bytes_, 'a')) {
    int file = ::open(file_.path().c_str(), O_RDONLY);
    address_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~MappedPages() { ::munmap(address_, bytes_); }

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte *>(address_), bytes_};
  }
  void truncate(size_t size) const {
    std::filesystem::resize_file(file_.path(), size);
  }
  /// The sum of all bytes, to read them.
  size_t sum() const {
    return std::accumulate(bytes().begin(), bytes().end(), size_t{0},
                           [](size_t sum, std::byte byte) {
                             return sum + std::to_integer<size_t>(byte);
                           });
  }

private:
  size_t bytes_;
  TemporaryFile file_;
  void *address_;
};

TEST(MappingGuard, BytesOfATruncatedFileReadAsZeros) {
  MappedPages whole(4), half(4);
  size_t sum = whole.sum();
  MappingGuard first(whole.bytes()), second(half.bytes());
  half.truncate(half.bytes().size() / 2);
  EXPECT_EQ(whole.sum(), sum);
  EXPECT_EQ(half.sum(), sum / 2);
  EXPECT_FALSE(first.hasLostBytes());
  EXPECT_TRUE(second.hasLostBytes());
  MappingGuard moved(std::move(second));
  EXPECT_TRUE(moved.hasLostBytes());
  // All of what is left may be lost later.
  half.truncate(0);
  EXPECT_EQ(half.sum(), 0u);
}

TEST(MappingGuard, OtherFaultsStillEndTheProcess) {
  MappedPages guarded(1), other(1);
  MappingGuard guard(guarded.bytes());
  other.truncate(0);
  EXPECT_DEATH(std::exit(other.sum() != 0),
               ""); // By the signal, or by a sanitizer.
}

TEST(MappingGuard, RegionsAreReused) {
  MappedPages pages(1);
  for (int round = 0; round < 2; ++round) {
    std::deque<MappingGuard> guards;
    do
      guards.emplace_back(pages.bytes());
    while (guards.back().isActive() && guards.size() < 1000);
    EXPECT_GE(guards.size(), 32u);
    EXPECT_LT(guards.size(), 1000u);
  }
}

/// Lets a file look as if it had been written long ago: clocks of file systems
/// are coarse.
static void age(const std::string &path) {
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
}

TEST(ByteSource, ChangesAreNoticed) {
  TemporaryFile file(std::string(20000, 'a'));
  age(file.path());
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_TRUE((*dataset)->checkFiles().ok());
  std::string name = "data file " + file.path() + ": ";
  writeFile(file.path(), std::string(20000, 'b'));
  expectRejected((*dataset)->checkFiles(),
                 name + "was written to; the file has changed since it was "
                        "opened");
  std::filesystem::resize_file(file.path(), 100);
  PackedInput tokens(input("tokens", ElementType::i32, {4}));
  int32_t values[4];
  auto *target = reinterpret_cast<std::byte *>(values);
  EXPECT_TRUE((*dataset)->write(*tokens, {0, 4000}, target).ok());
  expectRejected((*dataset)->checkFiles(),
                 name + "has 100 bytes, had 20000; the file has changed");
}

// None of them may block, as a FIFO does that nobody writes to.
TEST(ByteSource, OnlyRegularFilesAreRead) {
  TemporaryFolder folder;
  std::string fifo = folder / "fifo", socket = folder / "socket";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(::mknod(socket.c_str(), S_IFSOCK | 0600, 0), 0);
  for (auto [path, kind] :
       {std::pair(folder.path(), "a folder"), std::pair(fifo, "a FIFO"),
        std::pair(socket, "a socket"),
        std::pair(std::string("/dev/zero"), "a device")})
    expectRejected(textData(path), "data file " + path + ": is " + kind +
                                       ", wanted a regular file");
  std::filesystem::create_symlink(fifo, folder / "link");
  expectRejected(textData(folder / "link"), "is a FIFO");
}

// The first id out of range is named, also if it was in no batch yet.
TEST(ByteSource, ChangesAreNamedByTheirWorst) {
  TemporaryFile file("abcdefghijklm");
  age(file.path());
  DataT data = textData(file.path());
  data.vocabulary = 'z';
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  writeFile(file.path(), "abcdefghijzzz");
  expectRejected((*dataset)->checkFiles(),
                 "token 10 has id 122, which is not below the vocabulary of "
                 "122; the file has changed");
}

// Their samples are read once, when they are opened.
TEST(ByteSource, UnpackedAndParsedFilesMayChange) {
  TemporaryFile file("1\tgood\n0\tbad\n");
  age(file.path());
  DataT data = textData(file.path());
  data.kind = "tsv";
  data.classes = 2;
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  writeFile(file.path(), "");
  EXPECT_TRUE((*dataset)->checkFiles().ok());
  EXPECT_EQ(read(**dataset, "label", {}, {0, 0}), std::vector<int32_t>{1});
}

} // namespace kiln::test
