// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_SESSION_RUNFOLDER_H
#define KILN_RUNTIME_SESSION_RUNFOLDER_H

#include "runtime/Status.h"
#include "runtime/checkpoint/RunFiles.h"

#include <cstdint>
#include <map>

namespace kiln {

/// Folder of a run's metrics, config and checkpoints. It is locked by one
/// process at a time; the lock ends with the process, however it ends.
class RunFolder {
public:
  /// The end of a message of code `io`.
  static constexpr const char *otherPlaces =
      "; --run-folder puts it elsewhere, --no-run-folder keeps nothing";

  /// Creates the folder if there is none. `usage` if another process has it,
  /// or if it is somebody else's.
  static Expected<RunFolder> open(const std::string &path);

  /// Whether a run may have the folder: it does not exist, is empty but for
  /// what the process prints, or is that of a run. Else `usage`.
  static Status check(const std::string &path);
  /// Whether `open` could make the folder, or files in it: `io`, with a way
  /// out.
  static Status checkPlace(const std::string &path);
  /// Whether the earlier run there, if any, can get another name. `usage` if
  /// that would move the working folder, one of `inputs` (paths by the user's
  /// word for them) or the folder of a run that trains.
  static Status checkSetAside(const std::string &path,
                              const std::map<std::string, std::string> &inputs);

  RunFolder(RunFolder &&other) noexcept;
  RunFolder &operator=(RunFolder &&other) noexcept;
  /// Removes the folders that `open` has made if they are still empty: a run
  /// that fails at its start leaves nothing behind.
  ~RunFolder();

  const std::string &path() const { return path_; }
  std::string checkpoints() const { return path_ + "/" + checkpointsName; }
  std::string metrics() const { return path_ + "/" + metricsName; }

  /// Whether files can be made in it, and in its checkpoints.
  Status checkWritable() const;
  /// Whether its checkpoints have room for a state of so many bytes, where the
  /// file system can tell.
  Status checkRoom(uint64_t bytes) const;
  /// Whether it holds an earlier run.
  bool holdsRun() const;
  /// Renames a folder that holds an earlier run to the first free PATH.N and
  /// begins a new one, so that no run overwrites another. Returns the new name
  /// of the earlier one; empty if there was none. `checkSetAside` comes first.
  Expected<std::string> setAside();
  /// Removes temporary files of runs that were killed.
  void removeRemains() const;

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
