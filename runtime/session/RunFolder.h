// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_RUNFOLDER_H
#define KILN_RUNTIME_SESSION_RUNFOLDER_H

#include "runtime/Status.h"

namespace kiln {

/// Folder of a run's metrics, config and checkpoints. It is locked by one
/// process at a time; the lock ends with the process, however it ends.
class RunFolder {
public:
  /// Creates the folder if there is none. `usage` if another process has it.
  static Expected<RunFolder> open(const std::string &path);

  RunFolder(RunFolder &&other) noexcept;
  RunFolder &operator=(RunFolder &&other) noexcept;
  /// Removes the folders that `open` has made if they are still empty: a run
  /// that fails at its start leaves nothing behind.
  ~RunFolder();

  const std::string &path() const { return path_; }
  /// The files that every run writes there.
  static constexpr const char *fileNames[] = {"metrics.jsonl", "config.yaml"};

  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }

  /// Renames a folder that holds an earlier run to the first free PATH.N and
  /// begins a new one, so that no run overwrites another. Returns the new name
  /// of the earlier one; empty if there was none.
  Expected<std::string> setAside();

  /// Replaces a small file of the folder; on a failure the old one stays.
  Status write(const std::string &name, const std::string &text) const;

private:
  RunFolder(std::string path, int folder)
      : path_(std::move(path)), folder_(folder) {}

  std::string path_;
  int folder_;        // Locked.
  unsigned made_ = 0; // Folders of the path that did not exist, from its end.
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_RUNFOLDER_H
