// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/TemporaryFiles.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace kiln {

namespace fs = std::filesystem;

static constexpr char temporaryMark[] = ".tmp-";

/// Writes all bytes; returns 0 or errno.
static int writeBytes(int target, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(target, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

/// Copies all bytes; returns 0 or errno.
static int copyBytes(int source, int target) {
  std::vector<std::byte> buffer(1 << 20);
  while (true) {
    ssize_t count = read(source, buffer.data(), buffer.size());
    if (count == 0)
      return 0;
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return errno;
    if (int error = writeBytes(
            target, std::span(buffer).first(static_cast<size_t>(count))))
      return error;
  }
}

/// Locks a new file or folder. False if it was taken for a remnant before and
/// removed. Where there are no locks, nothing is taken for one.
static bool holds(int file) {
  struct stat status;
  flock(file, LOCK_EX); // Whoever removes it holds the lock until it is gone.
  return fstat(file, &status) != 0 || status.st_nlink != 0;
}

/// A locked file beside the target; -1 with errno on failure.
static int createTemporary(const std::string &target, std::string &path) {
  static std::atomic<unsigned> number = 0;
  while (true) {
    path = target + temporaryMark + std::to_string(getpid()) + "-" +
           std::to_string(number++);
    int file =
        open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0 && errno == EEXIST)
      continue; // A process with this number has left it.
    if (file < 0 || holds(file))
      return file;
    close(file);
  }
}

/// Has `fill(descriptor)`, which returns 0 or errno, write a file beside the
/// target and renames it.
template <typename Fill>
static int replaceBy(const std::string &target, Fill fill) {
  struct stat status;
  bool isReplaced = stat(target.c_str(), &status) != 0 ||
                    S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
  std::string temporary;
  int to = isReplaced ? createTemporary(target, temporary)
                      : open(target.c_str(), O_WRONLY | O_CLOEXEC);
  if (to < 0)
    return errno;
  int error = fill(to);
  if (isReplaced && error == 0 &&
      rename(temporary.c_str(), target.c_str()) != 0)
    error = errno;
  if (isReplaced && error != 0)
    unlink(temporary.c_str());
  // Some file systems report a full disk only here.
  if (close(to) != 0 && error == 0)
    error = errno;
  return error;
}

int writeAtomically(const std::string &target,
                    std::span<const std::byte> bytes) {
  return replaceBy(target, [&](int to) { return writeBytes(to, bytes); });
}

int copyAtomically(const std::string &source, const std::string &target) {
  int from = open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0)
    return errno;
  fs::path path = target;
  removeRemains(path.parent_path().string(), path.filename().string());
  int error = replaceBy(target, [&](int to) {
    if (int failure = copyBytes(from, to))
      return failure;
    // Devices such as /dev/null cannot be flushed.
    return fdatasync(to) == 0 || errno == EINVAL ? 0 : errno;
  });
  close(from);
  return error;
}

void removeRemains(const std::string &folder, const std::string &prefix) {
  std::error_code error;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end;
       !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || name.find(temporaryMark) == name.npos)
      continue;
    int file = open(entry->path().c_str(),
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
      continue;
    std::error_code ignored;
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(entry->path(), ignored);
    close(file);
  }
}

ScratchFolder::ScratchFolder(const fs::path &parent) {
  std::string prefix = "kiln_scratch";
  removeRemains(parent.string(), prefix);
  while (true) {
    std::string name = (parent / (prefix + temporaryMark + "XXXXXX")).string();
    if (!mkdtemp(name.data())) {
      error_ = errno;
      return;
    }
    folder_ = open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_ < 0 || holds(folder_)) {
      path_ = name;
      return;
    }
    close(folder_);
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty())
    fs::remove_all(path_, ignored);
  if (folder_ >= 0)
    close(folder_);
}

MemoryFile::MemoryFile(const char *name)
    : file_(memfd_create(name, MFD_CLOEXEC)) {}

MemoryFile::~MemoryFile() {
  if (file_ >= 0)
    close(file_);
}

std::string MemoryFile::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_);
}

int MemoryFile::write(std::span<const std::byte> bytes) {
  return writeBytes(file_, bytes);
}

} // namespace kiln
