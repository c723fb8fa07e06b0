// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_TRACE_TRACEFILE_H
#define KILN_RUNTIME_TRACE_TRACEFILE_H

#include "runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kiln {

/// A JSON array that is written piece by piece. It is closed again with every
/// piece, so that the file of a killed run can be read, and so can one on a
/// full disk, which has the pieces that fitted. On a pipe the array is closed
/// by the destructor.
class TraceFile {
public:
  /// Empties an existing file, or refuses it.
  enum class Existing { emptied, refused };
  static Expected<std::unique_ptr<TraceFile>> open(const std::string &path,
                                                   Existing existing);
  ~TraceFile();
  TraceFile(const TraceFile &) = delete;

  /// Adds elements that are separated by ",\n": all of them, or none.
  Status append(std::string_view elements);
  /// Waits until the bytes are on the disk.
  Status finish();

  /// Bytes of the file; 0 for a pipe.
  uint64_t bytes() const { return isStream_ ? 0 : bytes_; }

private:
  TraceFile(std::string path, int file, bool isStream)
      : path_(std::move(path)), file_(file), isStream_(isStream) {}
  bool write(std::string_view text, uint64_t offset);

  std::string path_;
  int file_;
  bool isStream_;
  uint64_t bytes_ = 0; // Without the end of the array.
  const char *separator_ = "\n";
  std::string piece_;
};

} // namespace kiln

#endif // KILN_RUNTIME_TRACE_TRACEFILE_H
