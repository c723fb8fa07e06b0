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

Expected<ByteSource> ByteSource::open(const std::string &path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return rejectData(path, std::strerror(errno));
  struct stat info;
  bool isRegular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  void *mapping = MAP_FAILED;
  if (isRegular && info.st_size > 0)
    mapping = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ,
                     MAP_PRIVATE, file, 0);
  int failure = errno;
  ::close(file);
  if (!isRegular)
    return rejectData(path, "is not a regular file");
  if (info.st_size == 0)
    return rejectData(path, "is empty");
  if (mapping == MAP_FAILED)
    return Status(Code::io, "data file " + path + ": cannot be mapped: " +
                                std::strerror(failure));
  ByteSource source(path);
  source.mapping_ = {static_cast<const std::byte *>(mapping),
                     static_cast<size_t>(info.st_size)};
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

ByteSource::ByteSource(ByteSource &&other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::exchange(other.mapping_, {})),
      unpacked_(std::move(other.unpacked_)) {}

ByteSource::~ByteSource() {
  if (!mapping_.empty())
    ::munmap(const_cast<std::byte *>(mapping_.data()), mapping_.size());
}

} // namespace kiln
