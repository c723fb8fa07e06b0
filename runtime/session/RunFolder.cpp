// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/RunFolder.h"
#include "runtime/checkpoint/OutputFile.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

/// Whether the path still names the descriptor's folder: it may have been
/// renamed before it was locked.
static bool isAt(int folder, const std::string &path) {
  struct stat held, named;
  return ::fstat(folder, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/// The folders of a path that do not exist.
static unsigned countMissing(const fs::path &path) {
  std::error_code error;
  unsigned count = 0;
  for (fs::path folder = path; !folder.empty() && !fs::exists(folder, error);
       folder = folder.parent_path())
    ++count;
  return count;
}

Expected<RunFolder> RunFolder::open(const std::string &path) {
  while (true) {
    std::error_code error;
    unsigned missing = countMissing(path);
    fs::create_directories(path, error);
    if (error)
      return Status(Code::io, "run folder " + path +
                                  ": cannot create: " + error.message());
    int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
      return failIo("run folder " + path, "open");
    RunFolder run(path, folder);
    if (::flock(folder, LOCK_EX | LOCK_NB) != 0)
      return errno == EWOULDBLOCK
                 ? Status(Code::usage,
                          "run folder " + path +
                              ": another process is training here; wait for "
                              "it, or give another --run-folder")
                 : failIo("run folder " + path, "lock");
    if (isAt(folder, path)) {
      run.made_ = missing; // Not before: another process may use it.
      return run;
    }
  }
}

RunFolder::RunFolder(RunFolder &&other) noexcept
    : path_(std::move(other.path_)), folder_(std::exchange(other.folder_, -1)),
      made_(other.made_) {}

RunFolder &RunFolder::operator=(RunFolder &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(folder_, other.folder_);
  std::swap(made_, other.made_);
  return *this;
}

RunFolder::~RunFolder() {
  if (folder_ < 0)
    return;
  if (!isAt(folder_, path_)) // It was set aside.
    made_ = 0;
  fs::path folder = path_;
  for (; made_ != 0 && ::rmdir(folder.c_str()) == 0; --made_)
    folder = folder.parent_path();
  ::close(folder_);
}

Expected<std::string> RunFolder::setAside() {
  std::error_code error;
  if (fs::is_empty(path_, error))
    return std::string();
  for (unsigned number = 1;; ++number) {
    std::string name = path_ + "." + std::to_string(number);
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, name.c_str(),
                    RENAME_NOREPLACE) == 0) {
      Expected<RunFolder> fresh = open(path_);
      if (!fresh.ok())
        return fresh.status();
      *this = std::move(*fresh);
      return name;
    }
    if (errno != EEXIST)
      return failIo(path_, "set an earlier run aside");
  }
}

Status RunFolder::write(const std::string &name,
                        const std::string &text) const {
  return replaceFile(path_ + "/" + name, [&](OutputFile &file) {
    return file.write(std::as_bytes(std::span(text)));
  });
}

} // namespace kiln
