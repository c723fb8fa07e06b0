// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/TemporaryFiles.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln::test {
namespace {

namespace fs = std::filesystem;

class TemporaryFilesTest : public testing::Test {
protected:
  TemporaryFilesTest() {
    char name[] = "/tmp/kiln-temporary-XXXXXX";
    folder = mkdtemp(name);
  }
  ~TemporaryFilesTest() override {
    std::error_code error;
    fs::remove_all(folder, error);
  }

  std::string write(const std::string &name, const std::string &text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
  size_t count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder), {}));
  }

  fs::path folder;
};

TEST_F(TemporaryFilesTest, FailedWriteLeavesNothing) {
  std::string source = write("source", std::string(1 << 16, 'x'));
  // In a child: the limit would hit the other tests.
  pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(copyAtomically(source, folder / "target") == EFBIG ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(count(), 1u) << "only the source remains";
}

// A rename would replace the device by a file.
TEST_F(TemporaryFilesTest, DevicesAreWrittenTo) {
  std::string source = write("source", "x");
  fs::create_symlink("/dev/null", folder / "nothing");
  fs::create_symlink("/dev/full", folder / "full");
  EXPECT_EQ(copyAtomically(source, folder / "nothing"), 0);
  EXPECT_EQ(copyAtomically(source, folder / "full"), ENOSPC);
  EXPECT_TRUE(fs::is_symlink(folder / "nothing"));
  EXPECT_TRUE(fs::is_character_file(folder / "full"));
}

// A killed process cannot remove what it has made; the next one does. As long
// as it lives it keeps everything.
TEST_F(TemporaryFilesTest, RemainsOfEndedProcessesAreRemoved) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    ScratchFolder scratch(folder);
    std::ofstream(scratch.path() / "artifact") << "part of one";
    (void)!::write(ready[1], "r", 1);
    while (true)
      pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  write("m.kiln.tmp-1-0", "left behind");
  write("other.tmp-1-0", "not ours");
  write("m.kiln", "whole");
  removeRemains(folder, "kiln_");
  EXPECT_EQ(count(), 4u) << "a living process keeps its folder";
  EXPECT_EQ(copyAtomically(folder / "m.kiln", folder / "m.kiln"), 0);
  EXPECT_EQ(count(), 3u) << "remains of the same target go";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  removeRemains(folder, "kiln_");
  EXPECT_EQ(count(), 2u);
  EXPECT_TRUE(fs::exists(folder / "other.tmp-1-0"));
}

TEST_F(TemporaryFilesTest, AFileInMemoryHasNoName) {
  std::string path;
  {
    MemoryFile file("kiln-test");
    ASSERT_TRUE(file.isOpen());
    path = file.path();
    std::string text = "hello";
    EXPECT_EQ(file.write(std::as_bytes(std::span(text))), 0);
    EXPECT_EQ(copyAtomically(path, folder / "copy"), 0);
  }
  EXPECT_EQ(fs::file_size(folder / "copy"), 5u);
  EXPECT_FALSE(fs::exists(path));
}

} // namespace
} // namespace kiln::test
