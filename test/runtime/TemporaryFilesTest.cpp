// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/TemporaryFiles.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

// A name that merely looks alike may be the user's.
TEST_F(TemporaryFilesTest, FilesOfTheUserStay) {
  for (const char *name :
       {"m.kiln.tmp-notes", "m.kiln.tmp-", "m.kiln.tmp-1-", "m.kiln.tmp-1.bak",
        "m.kiln2.tmp-1-0", "kiln_1.kiln.tmp-notes"})
    write(name, "mine");
  for (const char *name : {"m.kiln.tmp-1-0", "kiln_scratch.tmp-mine"})
    fs::create_directory(folder / name);
  write("m.kiln.tmp-12", "left behind");
  write("kiln_1.kiln.tmp-1-0", "left behind");
  write("m.kiln", "whole");
  EXPECT_EQ(copyAtomically(folder / "m.kiln", folder / "m.kiln"), 0);
  EXPECT_FALSE(fs::exists(folder / "m.kiln.tmp-12"));
  EXPECT_EQ(count(), 10u);
  removeRemains(folder, "kiln_");
  EXPECT_FALSE(fs::exists(folder / "kiln_1.kiln.tmp-1-0"));
  EXPECT_EQ(count(), 9u);
}

// Whether or not the file system has files without names.
TEST_F(TemporaryFilesTest, AnInterruptedReplacementLeavesNothing) {
  std::string target = write("target", "old");
  pid_t child = fork();
  if (child == 0) {
    PendingFile file(target);
    (void)!::write(file.descriptor(), "new", 3);
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  removeRemains(target);
  EXPECT_EQ(count(), 1u);
  PendingFile file(target);
  ASSERT_EQ(file.error(), 0);
  EXPECT_EQ(::write(file.descriptor(), "new", 3), 3);
  EXPECT_EQ(fs::file_size(target), 3u);
  EXPECT_EQ(file.commit(), 0);
  EXPECT_EQ(count(), 1u);
  std::ifstream text(target);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(text), {}), "new");
}

// To open one for writing waits for a reader.
TEST_F(TemporaryFilesTest, AFifoThatNobodyReadsIsAnError) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(writeAtomically(folder / "fifo", {}), ENXIO);
}

TEST_F(TemporaryFilesTest, LinksAreFollowed) {
  fs::create_symlink("second", folder / "first");
  fs::create_symlink("third", folder / "second");
  EXPECT_EQ(followLinks(folder / "first"), folder / "third");
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
