// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/trace/TraceFile.h"
#include "runtime/checkpoint/OutputFile.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace kiln {

static constexpr std::string_view beginning = "[", ending = "\n]\n";

Expected<std::unique_ptr<TraceFile>> TraceFile::open(const std::string &path,
                                                     Existing existing) {
  int mode = existing == Existing::refused ? O_EXCL : O_TRUNC;
  int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644);
  if (file < 0)
    return failIo("trace " + path, "open");
  bool isStream = ::lseek(file, 0, SEEK_CUR) < 0;
  std::unique_ptr<TraceFile> trace(new TraceFile(path, file, isStream));
  std::string empty(beginning);
  if (!isStream)
    empty += ending;
  if (!trace->write(empty, 0))
    return failIo("trace " + path, "write");
  trace->bytes_ = beginning.size();
  return trace;
}

TraceFile::~TraceFile() {
  if (isStream_)
    (void)write(ending, 0); // Readers do not depend on it.
  ::close(file_);
}

bool TraceFile::write(std::string_view text, uint64_t offset) {
  while (!text.empty()) {
    ssize_t written = isStream_ ? ::write(file_, text.data(), text.size())
                                : ::pwrite(file_, text.data(), text.size(),
                                           static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return false;
    text.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return true;
}

Status TraceFile::append(std::string_view elements) {
  if (elements.empty())
    return Status();
  piece_.assign(separator_).append(elements);
  uint64_t size = piece_.size();
  if (!isStream_)
    piece_ += ending;
  if (!write(piece_, bytes_)) {
    Status status = failIo("trace " + path_, "write");
    if (!isStream_ && ::ftruncate(file_, static_cast<off_t>(bytes_)) == 0)
      (void)write(ending, bytes_); // There was room for it before.
    return status;
  }
  bytes_ += size;
  separator_ = ",\n";
  return Status();
}

Status TraceFile::finish() {
  // Pipes, and devices such as /dev/null, cannot be flushed.
  if (::fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS)
    return failIo("trace " + path_, "flush");
  return Status();
}

} // namespace kiln
