// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_CACHE_H
#define KILN_COMPILER_CONFIG_CACHE_H

#include "runtime/Status.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kiln {

/// Artifacts by compile key, or kernels by theirs, one file each, shared by all
/// processes of a user.
/// An entry appears atomically, by a rename; readers and writers need no lock.
/// No failure here is an error: the worst is a miss.
class Cache {
public:
  /// Contents of the entries; both kinds share one folder.
  enum class Kind { artifact, kernel };

  /// Warnings go to `warn`, at most one for an unusable folder and one for a
  /// unusable entry. Nothing is created before something is published.
  Cache(std::string folder, std::function<void(const std::string &)> warn,
        Kind kind = Kind::artifact);

  /// $KILN_CACHE_DIR, $XDG_CACHE_HOME/kiln or ~/.cache/kiln; empty when the
  /// environment names none.
  static std::string defaultFolder();

  struct Entry {
    std::string key;
    std::string path;
    uint64_t bytes;
  };

  /// Path of the entry when there is one that `check` accepts, or empty. An
  /// entry that it refuses is removed.
  std::string lookUp(const std::string &key,
                     const std::function<Status(const std::string &)> &check);

  /// Copies a finished file into the cache. Returns the entry's path, or empty.
  std::string publish(const std::string &key, const std::string &file);
  /// The same for bytes.
  std::string publish(const std::string &key, std::span<const std::byte> bytes);

  /// All entries of the kind by key.
  std::vector<Entry> list() const;

  /// Removes all entries of the kind and what ended processes left behind;
  /// returns the number of entries removed.
  size_t clear();
  /// Removes temporary files of processes that have ended.
  void removeRemains() const;

  /// Whether something can be published, as far as the folder tells; creates
  /// it.
  bool isUsable() { return prepareFolder(); }

  /// Folder for temporary files: this one, or the system's if it is unusable or
  /// full.
  std::string scratchParent();

  const std::string &path() const { return folder; }

private:
  bool prepareFolder();
  std::string pathOf(const std::string &key) const;
  std::string report(const std::string &path, int error);
  void warnOnce(const std::string &message);

  std::string folder;
  std::function<void(const std::string &)> warn;
  const char *suffix;
  bool hasWarned = false;
};

} // namespace kiln

#endif
