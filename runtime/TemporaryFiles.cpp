// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/TemporaryFiles.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace kiln {

namespace fs = std::filesystem;

static constexpr std::string_view temporaryMark = ".tmp-",
                                  scratchName = "kiln_scratch",
                                  scratchPattern = ".tmp-XXXXXX";

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

std::string makeTemporaryName(const std::string &target) {
  static std::atomic<unsigned> number = 0;
  return target + std::string(temporaryMark) + std::to_string(getpid()) + "-" +
         std::to_string(number++);
}

fs::path followLinks(fs::path path) {
  constexpr int mostLinks = 40; // As the kernel.
  std::error_code error;
  for (int i = 0; i < mostLinks && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : resolved;
}

/// A FIFO that nobody reads is an error; to wait for a reader would hang.
static int openInPlace(const std::string &path) {
  int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0)
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}

PendingFile::PendingFile(const std::string &target) : target_(target) {
  struct stat status;
  bool exists = stat(target_.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) {
    error_ = errno;
    return;
  }
  isInPlace_ = exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
  fs::path folder = fs::path(target_).parent_path();
  file_ =
      isInPlace_ ? openInPlace(target_) : open(folder.empty() ? "." : folder);
  if (file_ < 0)
    error_ = errno;
}

/// A locked file in the folder; -1 with errno on failure.
int PendingFile::open(const fs::path &folder) {
  int file = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
  if (file >= 0) {
    flock(file, LOCK_EX);
    return file;
  }
  while (true) { // Not every file system has files without names.
    temporary_ = makeTemporaryName(target_);
    file = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                  0644);
    if (file < 0 && errno == EEXIST)
      continue; // A process with this number has left it.
    if (file < 0)
      temporary_.clear();
    if (file < 0 || holds(file))
      return file;
    close(file);
  }
}

/// Gives the file a name, which a rename needs. Returns 0 or errno.
int PendingFile::name() {
  std::string here = "/proc/self/fd/" + std::to_string(file_);
  while (temporary_.empty()) {
    std::string made = makeTemporaryName(target_);
    if (linkat(AT_FDCWD, here.c_str(), AT_FDCWD, made.c_str(),
               AT_SYMLINK_FOLLOW) == 0)
      temporary_ = made;
    else if (errno != EEXIST)
      return errno;
  }
  return 0;
}

int PendingFile::reserve(uint64_t bytes) const {
  if (fallocate(file_, 0, 0, static_cast<off_t>(bytes)) == 0)
    return 0;
  return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : errno;
}

int PendingFile::commit() {
  if (!isInPlace_) {
    if (int error = name())
      return error;
    if (rename(temporary_.c_str(), target_.c_str()) != 0)
      return errno;
    temporary_.clear();
  }
  // Some file systems report a full disk only here.
  return close(std::exchange(file_, -1)) == 0 ? 0 : errno;
}

PendingFile::~PendingFile() {
  if (!temporary_.empty())
    unlink(temporary_.c_str());
  if (file_ >= 0)
    close(file_);
}

/// Has `fill(descriptor)`, which returns 0 or errno, write the target anew.
template <typename Fill>
static int replaceBy(const std::string &target, Fill fill) {
  PendingFile file(target);
  if (file.error())
    return file.error();
  int error = fill(file.descriptor());
  return error ? error : file.commit();
}

int writeAtomically(const std::string &target,
                    std::span<const std::byte> bytes) {
  return replaceBy(target, [&](int to) { return writeBytes(to, bytes); });
}

int copyAtomically(const std::string &source, const std::string &target) {
  int from = open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0)
    return errno;
  removeRemains(target);
  int error = replaceBy(target, [&](int to) {
    if (int failure = copyBytes(from, to))
      return failure;
    // Devices such as /dev/null cannot be flushed.
    return fdatasync(to) == 0 || errno == EINVAL ? 0 : errno;
  });
  close(from);
  return error;
}

/// Whether the text is numbers with dashes between them.
static bool areNumbers(std::string_view text) {
  bool isDigit = false;
  for (char letter : text) {
    if (!(letter >= '0' && letter <= '9') && !(letter == '-' && isDigit))
      return false;
    isDigit = letter != '-';
  }
  return isDigit;
}

bool isTemporaryName(std::string_view name, std::string_view target) {
  if (!name.starts_with(target))
    return false;
  name.remove_prefix(target.size());
  return name.starts_with(temporaryMark) &&
         areNumbers(name.substr(temporaryMark.size()));
}

/// Removes a file, or a scratch folder, unless a process holds its lock.
static void removeUnlocked(const fs::path &path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return;
  std::error_code ignored;
  if (flock(file, LOCK_EX | LOCK_NB) == 0)
    fs::remove_all(path, ignored);
  close(file);
}

/// Whether `name` is that of a scratch folder, as `ScratchFolder` makes it.
static bool isScratchName(std::string_view name) {
  return name.starts_with(scratchName) &&
         name.size() == scratchName.size() + scratchPattern.size() &&
         name.substr(scratchName.size()).starts_with(temporaryMark);
}

/// Removes those of a folder for which isRemnant(name, type) holds.
template <typename IsRemnant>
static void removeRemains(const std::string &folder, IsRemnant isRemnant) {
  std::error_code error;
  std::vector<fs::path> remains; // Not removed while they are listed.
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end;
       !error && entry != end; entry.increment(error))
    if (std::error_code ignored;
        isRemnant(entry->path().filename().string(),
                  entry->symlink_status(ignored).type()))
      remains.push_back(entry->path());
  for (const fs::path &path : remains)
    removeUnlocked(path);
}

void removeRemains(const std::string &target) {
  fs::path path = target;
  removeRemains(path.parent_path().string(),
                [&](std::string_view name, fs::file_type type) {
                  return type == fs::file_type::regular &&
                         isTemporaryName(name, path.filename().string());
                });
}

void removeRemains(const std::string &folder, const std::string &prefix) {
  removeRemains(folder, [&](std::string_view name, fs::file_type type) {
    if (!name.starts_with(prefix))
      return false;
    return type == fs::file_type::directory
               ? isScratchName(name)
               : type == fs::file_type::regular &&
                     isTemporaryName(name,
                                     name.substr(0, name.rfind(temporaryMark)));
  });
}

ScratchFolder::ScratchFolder(const fs::path &parent) {
  removeRemains(parent.string(), std::string(scratchName));
  while (true) {
    std::string name =
        (parent / std::string(scratchName).append(scratchPattern)).string();
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
