// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/FileKind.h"
#include "runtime/data/Fingerprint.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace kiln {

Status rejectData(const std::string &path, const std::string &found) {
  return Status(Code::inputRejected, "data file " + path + ": " + found);
}

namespace {

using Bytes = std::vector<std::byte>;

/// Unpacks gzip members, one after another. zlib's own reader of gzip files
/// drops all from the first bytes on that do not begin a member, silently.
class Unpacker {
public:
  Unpacker() { isReady_ = ::inflateInit2(&stream_, gzipWindow) == Z_OK; }
  ~Unpacker() { ::inflateEnd(&stream_); }
  Unpacker(const Unpacker &) = delete;

  /// Unpacks the member that `packed` begins with, and removes it there. False
  /// if there is no intact member.
  bool unpackMember(std::span<const std::byte> &packed, Bytes &bytes) {
    constexpr size_t chunk = 1 << 20;
    int state = isReady_ ? ::inflateReset(&stream_) : Z_MEM_ERROR;
    while (state == Z_OK) {
      size_t given = std::min(packed.size(), chunk), filled = bytes.size();
      bytes.resize(filled + chunk);
      stream_.next_in =
          const_cast<Bytef *>(reinterpret_cast<const Bytef *>(packed.data()));
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = reinterpret_cast<Bytef *>(bytes.data() + filled);
      stream_.avail_out = chunk;
      state = ::inflate(&stream_, Z_NO_FLUSH);
      packed = packed.subspan(given - stream_.avail_in);
      bytes.resize(filled + chunk - stream_.avail_out);
    }
    return state == Z_STREAM_END;
  }

private:
  static constexpr int gzipWindow = 15 + 16; // The largest, with gzip's header.

  z_stream stream_ = {};
  bool isReady_;
};

bool isPacked(std::span<const std::byte> bytes) {
  return bytes.size() > 2 && bytes[0] == std::byte{0x1f} &&
         bytes[1] == std::byte{0x8b};
}

Expected<Bytes> unpack(const std::string &path,
                       std::span<const std::byte> packed) {
  Unpacker unpacker;
  Bytes bytes;
  size_t size = packed.size();
  for (uint64_t member = 1; !packed.empty(); ++member) {
    std::string place = "gzip member " + std::to_string(member) +
                        ", from byte " + std::to_string(size - packed.size()) +
                        " on,";
    bool isIntact = false;
    try {
      isIntact = unpacker.unpackMember(packed, bytes);
    } catch (const std::bad_alloc &) {
      return rejectData(path, "there is no memory to unpack more than " +
                                  std::to_string(bytes.size()) +
                                  " bytes of it");
    }
    if (!isIntact)
      return rejectData(path, place + " is damaged or truncated; " +
                                  std::to_string(bytes.size()) +
                                  " bytes could be unpacked");
  }
  if (bytes.empty())
    return rejectData(path, "is empty once unpacked");
  return bytes;
}

} // namespace

/// Opens the file and maps it.
Status ByteSource::map() {
  // A FIFO would block until somebody writes to it.
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  int failure = errno;
  bool isThere = file_ < 0 ? ::stat(path_.c_str(), &seen_) == 0
                           : ::fstat(file_, &seen_) == 0;
  if (isThere && !S_ISREG(seen_.st_mode))
    return rejectData(path_, "is " + describeKind(seen_.st_mode) +
                                 ", wanted a regular file");
  if (file_ < 0 || !isThere)
    return rejectData(path_, std::strerror(failure));
  auto size = static_cast<size_t>(seen_.st_size);
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
  fingerprint_ = fingerprintBytes(mapping_);
  return Status();
}

Expected<ByteSource> ByteSource::open(const std::string &path,
                                      const Warn &warn) {
  ByteSource source(path, warn);
  if (Status status = source.map(); !status.ok())
    return status;
  if (!isPacked(source.mapping_))
    return source;
  Expected<Bytes> unpacked = unpack(path, source.mapping_);
  // A file that was changed meanwhile is not damaged.
  if (Status status = source.check(); !status.ok())
    return status;
  if (!unpacked.ok())
    return unpacked.status();
  ByteSource result(path, warn);
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
  auto size = static_cast<uint64_t>(now.st_size);
  if (size < mapping_.size())
    return rejectData(path_, "has " + std::to_string(size) + " bytes, had " +
                                 std::to_string(mapping_.size()) +
                                 changedSince);
  bool isUntouched = now.st_size == seen_.st_size &&
                     now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
                     now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
  if (!isUntouched)
    if (Status status = compareBytes(now); !status.ok())
      return status;
  if (guard_->hasLostBytes())
    return Status(Code::io,
                  "data file " + path_ +
                      ": bytes of it could not be read from the disk");
  return Status();
}

/// Whether a later write will give the file another time: clocks of file
/// systems tick slowly.
static bool isPast(const struct timespec &time) {
  struct timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  constexpr double tick = 0.1; // Seconds, and more than any has.
  double age = static_cast<double>(now.tv_sec - time.tv_sec) +
               1e-9 * static_cast<double>(now.tv_nsec - time.tv_nsec);
  return age < 0 || age > tick;
}

/// A file that was written to need not have changed: it was touched, copied
/// over itself, or has grown.
Status ByteSource::compareBytes(const struct stat &now) const {
  if (fingerprintBytes(mapping_) != fingerprint_)
    return rejectData(path_, std::string("was written to") + changedSince);
  if (isPast(now.st_mtim))
    seen_ = now;
  if (warn_ && !std::exchange(hasWarned_, true))
    warn_("data file " + path_ +
          ": was written to since it was opened; the bytes that are used are "
          "the same, so the run goes on");
  return Status();
}

ByteSource::ByteSource(ByteSource &&other) noexcept
    : path_(std::move(other.path_)), warn_(std::move(other.warn_)),
      file_(std::exchange(other.file_, -1)), seen_(other.seen_),
      hasWarned_(other.hasWarned_), fingerprint_(std::move(other.fingerprint_)),
      mapping_(std::exchange(other.mapping_, {})),
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
