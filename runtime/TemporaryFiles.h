// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files and folders that exist only while a process works on them. The owner
// holds a lock, which goes with it however it ends: anything temporary that is
// not locked was left behind, and the next command removes it.
#ifndef KILN_RUNTIME_TEMPORARYFILES_H
#define KILN_RUNTIME_TEMPORARYFILES_H

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

/// The absolute path behind all links, also of a file that does not exist.
std::filesystem::path followLinks(std::filesystem::path path);

/// A file that takes its target's place when it is complete: until then the
/// target is untouched. It has no name before that, if the file system can do
/// so, and nothing is left of it however the process ends. A target that is no
/// regular file, such as /dev/null, is written to; a link to one is replaced.
class PendingFile {
public:
  /// `error` is errno if there is no file to write to.
  explicit PendingFile(const std::string &target);
  ~PendingFile();
  PendingFile(const PendingFile &) = delete;

  int error() const { return error_; }
  int descriptor() const { return file_; }
  /// 0, or errno if there is no room for so many bytes; 0 as well where the
  /// file system cannot tell.
  int reserve(uint64_t bytes) const;

  /// Replaces the target. Returns 0 or errno.
  int commit();

private:
  int open(const std::filesystem::path &folder);
  int name();

  std::string target_;
  std::string temporary_; // Its name, if it has one.
  int file_ = -1;         // Locked.
  int error_ = 0;
  bool isInPlace_ = false; // It is the target itself.
};

/// Replaces a file by these bytes, as a PendingFile. Returns 0 or errno, and
/// then leaves nothing.
int writeAtomically(const std::string &target,
                    std::span<const std::byte> bytes);
/// The same with a file's bytes, which are on the disk afterwards.
int copyAtomically(const std::string &source, const std::string &target);

/// The path of a temporary file or folder beside its target, another one in
/// each call.
std::string makeTemporaryName(const std::string &target);

/// Whether this is the name of a temporary file of a target with that name:
/// the target's and ".tmp-" with numbers, and nothing that a user would choose.
bool isTemporaryName(std::string_view name, std::string_view target);

/// Removes the temporary files of this target whose process has ended.
void removeRemains(const std::string &target);
/// Removes those of all targets whose names begin with `prefix`, and scratch
/// folders.
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

#endif // KILN_RUNTIME_TEMPORARYFILES_H
