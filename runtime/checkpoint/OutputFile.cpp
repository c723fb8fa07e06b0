// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/OutputFile.h"
#include "runtime/FileKind.h"
#include "runtime/TemporaryFiles.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

namespace kiln {

Status failIo(const std::string &path, const char *action, int error) {
  return Status(Code::io,
                path + ": cannot " + action + ": " + std::strerror(error));
}

Status failIo(const std::string &path, const char *action) {
  return failIo(path, action, errno);
}

Status syncFolder(const std::string &path) {
  int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return failIo(path, "open");
  Status status = ::fsync(folder) == 0 ? Status() : failIo(path, "flush");
  ::close(folder);
  return status;
}

Expected<OutputFile> OutputFile::create(const std::string &path,
                                        const std::string &name) {
  int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0)
    return failIo(name, "create");
  return OutputFile(name, file);
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : name_(std::move(other.name_)), file_(std::exchange(other.file_, -1)),
      bytes_(other.bytes_), hash_(std::move(other.hash_)),
      hashText_(std::move(other.hashText_)) {}

OutputFile::~OutputFile() {
  if (file_ >= 0)
    ::close(file_);
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  // In blocks, so that hashed bytes are still in the cache when written.
  constexpr size_t piece = 1 << 20;
  while (!bytes.empty()) {
    ssize_t written =
        ::write(file_, bytes.data(), std::min(piece, bytes.size()));
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return failIo(name_, "write");
    auto count = static_cast<size_t>(written);
    hash_.add(bytes.first(count));
    bytes_ += count;
    bytes = bytes.subspan(count);
  }
  return Status();
}

Status OutputFile::finish() {
  if (::fdatasync(file_) != 0)
    return failIo(name_, "flush");
  if (::close(std::exchange(file_, -1)) != 0)
    return failIo(name_, "close");
  hashText_ = printDigest(hash_.finish());
  return Status();
}

/// Whether it is a pipe of this process, and no FIFO with a name.
static bool isPipe(const std::string &path) {
  constexpr auto pipes = 0x50495045; // PIPEFS_MAGIC
  struct statfs system;
  return ::statfs(path.c_str(), &system) == 0 && system.f_type == pipes;
}

Status checkOutput(const std::string &name, const std::string &path) {
  struct stat status;
  bool exists = ::stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT)
    return failIo(name, "open");
  if (exists && S_ISDIR(status.st_mode))
    return failIo(name, "open", EISDIR);
  if (exists &&
      (S_ISSOCK(status.st_mode) || (S_ISFIFO(status.st_mode) && !isPipe(path))))
    return Status(Code::usage, name + ": is " + describeKind(status.st_mode) +
                                   ", wanted a file");
  std::string place = exists ? path : followLinks(path).parent_path().string();
  return ::access(place.c_str(), exists ? W_OK : W_OK | X_OK) == 0
             ? Status()
             : failIo(name, "open");
}

Status checkReplaced(const std::string &name, const std::string &path) {
  struct stat status;
  bool isPassing = ::stat(path.c_str(), &status) == 0 &&
                   (S_ISSOCK(status.st_mode) || S_ISFIFO(status.st_mode));
  return isPassing ? Status(Code::usage, name + ": is " +
                                             describeKind(status.st_mode) +
                                             ", wanted a file")
                   : Status();
}

/// A file that is written and not yet in its place.
static Status write(PendingFile &pending, const FileContents &contents) {
  const std::string &path = contents.path;
  if (pending.error() != 0)
    return failIo(path, "create", pending.error());
  // Committing needs the descriptor once more.
  int file = ::fcntl(pending.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (file < 0)
    return failIo(path, "create");
  OutputFile output(path, file);
  Status status = contents.fill(output);
  return status.ok() ? output.finish() : status;
}

Status replaceFiles(const std::vector<FileContents> &files) {
  std::deque<PendingFile> pending;
  for (const FileContents &file : files) {
    std::string target =
        file.followsLinks ? followLinks(file.path).string() : file.path;
    removeRemains(target);
    if (Status status = write(pending.emplace_back(target), file); !status.ok())
      return status;
  }
  for (size_t i = 0; i < files.size(); ++i)
    if (int error = pending[i].commit())
      return failIo(files[i].path, "put a finished file in its place", error);
  return Status();
}

Status replaceFile(const std::string &path,
                   const std::function<Status(OutputFile &)> &fill) {
  return replaceFiles({{path, fill}});
}

} // namespace kiln
