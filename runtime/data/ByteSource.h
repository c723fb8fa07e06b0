// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_BYTESOURCE_H
#define KILN_RUNTIME_DATA_BYTESOURCE_H

#include "runtime/Status.h"
#include "runtime/Warn.h"
#include "runtime/data/MappingGuard.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace kiln {

/// "data file PATH: FOUND", as a rejected input.
Status rejectData(const std::string &path, const std::string &found);

/// Ends a message on a file that was in order when it was opened.
inline constexpr const char *changedSince =
    "; the file has changed since it was opened";

/// The bytes of a data file: mapped, or unpacked if it is a gzip file. A mapped
/// file may be changed by others at any time.
class ByteSource {
public:
  /// `inputRejected` if the file is missing, empty, or damaged gzip. `warn`
  /// tells of writes to it that have changed none of the bytes.
  static Expected<ByteSource> open(const std::string &path,
                                   const Warn &warn = {});

  ByteSource(ByteSource &&other) noexcept;
  ByteSource &operator=(ByteSource &&) = delete;
  ~ByteSource();

  std::span<const std::byte> bytes() const {
    return mapping_.empty() ? std::span<const std::byte>(unpacked_) : mapping_;
  }
  const std::string &path() const { return path_; }

  /// Whether the bytes read so far are those of the file as it was opened, to
  /// be asked after reading: a file that has shrunk ends in zeros.
  /// `inputRejected` if it has changed since, as far as fingerprints tell;
  /// other times of the file and bytes behind the old end do not matter.
  /// Allocates nothing unless the file was written to. For one thread.
  Status check() const;

private:
  ByteSource(std::string path, Warn warn)
      : path_(std::move(path)), warn_(std::move(warn)) {}
  Status map();
  Status compareBytes(const struct stat &now) const;

  std::string path_;
  Warn warn_;
  int file_ = -1;
  mutable struct stat seen_ = {}; // When the bytes were compared last.
  mutable bool hasWarned_ = false;
  std::string fingerprint_; // Of the mapping, as the file was opened.
  std::span<const std::byte> mapping_;
  std::optional<MappingGuard> guard_; // Of the mapping.
  std::vector<std::byte> unpacked_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_BYTESOURCE_H
