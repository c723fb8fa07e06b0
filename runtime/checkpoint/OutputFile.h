// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_OUTPUTFILE_H
#define KILN_RUNTIME_CHECKPOINT_OUTPUTFILE_H

#include "runtime/Status.h"
#include "runtime/artifact/Sha256.h"

#include <cstdint>
#include <functional>
#include <vector>

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

  /// Takes an open file.
  OutputFile(std::string name, int file)
      : name_(std::move(name)), file_(file) {}
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
  std::string name_;
  int file_;
  uint64_t bytes_ = 0;
  Sha256 hash_;
  std::string hashText_;
};

/// A file to write, by `fill`.
struct FileContents {
  std::string path;
  std::function<Status(OutputFile &)> fill;
  bool followsLinks = false; // Else a link is replaced.
};

/// Writes files beside their paths and renames them once all are complete, in
/// this order: a path always holds the old file or the complete new one, and
/// after a failed write all hold the old ones.
Status replaceFiles(const std::vector<FileContents> &files);
Status replaceFile(const std::string &path,
                   const std::function<Status(OutputFile &)> &fill);

/// Whether a file can be written at `path`, which messages call `name`: `io` if
/// not, `usage` for a FIFO, on which writing would wait for a reader. Nothing
/// is created, so that it can be asked before anything else is done.
Status checkOutput(const std::string &name, const std::string &path);

/// `usage` for a FIFO or socket, whose place a finished file cannot take.
Status checkReplaced(const std::string &name, const std::string &path);

/// "PATH: cannot ACTION: " and the text of an error, of errno unless another is
/// given, as an I/O error.
Status failIo(const std::string &path, const char *action);
Status failIo(const std::string &path, const char *action, int error);

/// Makes the entries of a folder survive a loss of power.
Status syncFolder(const std::string &path);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_OUTPUTFILE_H
