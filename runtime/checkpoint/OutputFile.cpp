// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/OutputFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace kiln {

Status failIo(const std::string &path, const char *action) {
  return Status(Code::io,
                path + ": cannot " + action + ": " + std::strerror(errno));
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

Status replaceFile(const std::string &path,
                   const std::function<Status(OutputFile &)> &fill) {
  std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  ::unlink(temporary.c_str()); // A dead process with this pid may have left it.
  Expected<OutputFile> file = OutputFile::create(temporary, path);
  if (!file.ok())
    return file.status();
  Status status = fill(*file);
  if (status.ok())
    status = file->finish();
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    status = failIo(path, "rename a temporary file to it");
  if (!status.ok())
    ::unlink(temporary.c_str());
  return status;
}

} // namespace kiln
