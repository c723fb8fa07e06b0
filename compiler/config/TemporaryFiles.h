// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files and folders that exist only while a process works on them. The owner
// holds a lock, which goes with it however it ends: anything temporary that is
// not locked was left behind, and the next command removes it.
#ifndef KILN_COMPILER_CONFIG_TEMPORARY_FILES_H
#define KILN_COMPILER_CONFIG_TEMPORARY_FILES_H

#include <filesystem>
#include <span>
#include <string>

namespace kiln {

/// Writes a file beside its target and renames it over the target, which is
/// thus complete or untouched. On failure returns errno and leaves nothing. A
/// target that is no regular file, such as /dev/null, is written to.
int writeAtomically(const std::string &target,
                    std::span<const std::byte> bytes);
/// The same with a file's bytes, which are on the disk afterwards.
int copyAtomically(const std::string &source, const std::string &target);

/// Removes the temporary files and folders whose names begin with `prefix` and
/// whose process has ended.
void removeRemains(const std::string &folder, const std::string &prefix);

/// A folder that is removed with its contents, however the command ends (under
/// a SignalGuard).
class ScratchFolder {
public:
  explicit ScratchFolder(const std::filesystem::path &parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder &) = delete;

  /// Empty if it could not be created; `error` is then errno.
  const std::filesystem::path &path() const { return path_; }
  int error() const { return error_; }

private:
  std::filesystem::path path_;
  int folder_ = -1; // Holds the lock.
  int error_ = 0;
};

/// A file without a name, in memory: nothing is left of it, however the process
/// ends, and no disk can be full.
class MemoryFile {
public:
  explicit MemoryFile(const char *name);
  ~MemoryFile();
  MemoryFile(const MemoryFile &) = delete;

  bool isOpen() const { return file_ >= 0; }
  /// Where this process, and others of this machine while it lives, can open
  /// it.
  std::string path() const;
  /// Appends; returns 0 or errno.
  int write(std::span<const std::byte> bytes);

private:
  int file_;
};

} // namespace kiln

#endif
