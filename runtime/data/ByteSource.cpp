// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace kiln {

Status rejectData(const std::string &path, const std::string &found) {
  return Status(Code::inputRejected, "data file " + path + ": " + found);
}

static Expected<std::vector<std::byte>> unpack(const std::string &path) {
  gzFile file = ::gzopen(path.c_str(), "rbe");
  if (!file)
    return rejectData(path, "cannot be opened as gzip");
  std::vector<std::byte> bytes;
  constexpr unsigned chunk = 1 << 20;
  int got = 0;
  do {
    size_t filled = bytes.size();
    bytes.resize(filled + chunk);
    got = ::gzread(file, bytes.data() + filled, chunk);
    bytes.resize(filled + static_cast<size_t>(got > 0 ? got : 0));
  } while (got > 0);
  // A truncated stream is noticed by gzclose only.
  int closed = ::gzclose(file);
  if (got < 0 || closed != Z_OK)
    return rejectData(path, "gzip stream is damaged or truncated after " +
                                std::to_string(bytes.size()) + " bytes");
  return bytes;
}

static const char *describeType(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

/// Opens the file and maps it.
Status ByteSource::map() {
  // A FIFO would block until somebody writes to it.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  int failure = errno;
  bool isThere = file_ < 0 ? ::stat(path_.c_str(), &opened_) == 0
                           : ::fstat(file_, &opened_) == 0;
  if (isThere && !S_ISREG(opened_.st_mode))
    return rejectData(path_, std::string("is ") +
                                 describeType(opened_.st_mode) +
                                 ", wanted a regular file");
  if (file_ < 0 || !isThere)
    return rejectData(path_, std::strerror(failure));
  auto size = static_cast<size_t>(opened_.st_size);
  if (size == 0)
    return rejectData(path_, "is empty");
  void *mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_, 0);
  if (mapping == MAP_FAILED)
    return Status(Code::io, "data file " + path_ +
                                ": cannot be mapped: " + std::strerror(errno));
  mapping_ = {static_cast<const std::byte *>(mapping), size};
  guard_.emplace(mapping_);
  if (!guard_->isActive())
    return Status(Code::failed,
                  "data file " + path_ + ": too many files are mapped at once");
  return Status();
}

Expected<ByteSource> ByteSource::open(const std::string &path) {
  ByteSource source(path);
  if (Status status = source.map(); !status.ok())
    return status;
  bool isPacked = source.mapping_.size() > 2 &&
                  source.mapping_[0] == std::byte{0x1f} &&
                  source.mapping_[1] == std::byte{0x8b};
  if (!isPacked)
    return source;
  Expected<std::vector<std::byte>> unpacked = unpack(path);
  if (!unpacked.ok())
    return unpacked.status();
  if (unpacked->empty())
    return rejectData(path, "is empty once unpacked");
  ByteSource result(path);
  result.unpacked_ = std::move(*unpacked);
  return result;
}

Status ByteSource::check() const {
  if (!guard_)
    return Status();
  struct stat now;
  if (::fstat(file_, &now) != 0)
    return Status(Code::io, "data file " + path_ +
                                ": cannot be read: " + std::strerror(errno));
  if (now.st_size != opened_.st_size)
    return rejectData(path_,
                      "has " + std::to_string(now.st_size) + " bytes, had " +
                          std::to_string(opened_.st_size) + changedSince);
  if (now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec)
    return rejectData(path_, std::string("was written to") + changedSince);
  if (guard_->hasLostBytes())
    return Status(Code::io,
                  "data file " + path_ +
                      ": bytes of it could not be read from the disk");
  return Status();
}

ByteSource::ByteSource(ByteSource &&other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)),
      opened_(other.opened_), mapping_(std::exchange(other.mapping_, {})),
      guard_(std::move(other.guard_)), unpacked_(std::move(other.unpacked_)) {
  other.guard_.reset();
}

ByteSource::~ByteSource() {
  guard_.reset(); // Before its addresses can be another mapping's.
  if (!mapping_.empty())
    ::munmap(const_cast<std::byte *>(mapping_.data()), mapping_.size());
  if (file_ >= 0)
    ::close(file_);
}

} // namespace kiln
