// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_OUTPUTFILE_H
#define KILN_RUNTIME_CHECKPOINT_OUTPUTFILE_H

#include "runtime/Status.h"
#include "runtime/artifact/Sha256.h"

#include <cstdint>
#include <functional>

namespace kiln {

/// A new file, hashed while it is written, so that saving needs no second pass
/// and no copy in memory. Nothing is promised about its contents before
/// `finish` has succeeded.
class OutputFile {
public:
  /// Refuses to open an existing file. Errors name the file that it will be.
  static Expected<OutputFile> create(const std::string &path,
                                     const std::string &name);
  static Expected<OutputFile> create(const std::string &path) {
    return create(path, path);
  }

  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&) = delete;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  /// Waits until the bytes are on the disk, and closes the file.
  Status finish();

  uint64_t bytes() const { return bytes_; }
  /// SHA-256 of all bytes written; after `finish`.
  const std::string &hash() const { return hashText_; }
  const std::string &name() const { return name_; }

private:
  OutputFile(std::string name, int file)
      : name_(std::move(name)), file_(file) {}

  std::string name_;
  int file_;
  uint64_t bytes_ = 0;
  Sha256 hash_;
  std::string hashText_;
};

/// Writes a file beside `path` by `fill` and renames it, so that the path
/// always holds the old file or the complete new one.
Status replaceFile(const std::string &path,
                   const std::function<Status(OutputFile &)> &fill);

/// "PATH: cannot ACTION: " and the text of errno, as an I/O error.
Status failIo(const std::string &path, const char *action);

/// Makes the entries of a folder survive a loss of power.
Status syncFolder(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_OUTPUTFILE_H
