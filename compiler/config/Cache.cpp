// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Cache.h"
#include "runtime/TemporaryFiles.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

Cache::Cache(std::string folder, std::function<void(const std::string &)> warn,
             Kind kind)
    : folder(std::move(folder)), warn(std::move(warn)),
      suffix(kind == Kind::artifact ? ".kiln" : ".kernel") {}

std::string Cache::pathOf(const std::string &key) const {
  return folder + "/" + key + suffix;
}

std::string Cache::defaultFolder() {
  auto variable = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string own = variable("KILN_CACHE_DIR"); !own.empty())
    return own;
  if (std::string base = variable("XDG_CACHE_HOME"); !base.empty())
    return base + "/kiln";
  if (std::string home = variable("HOME"); !home.empty())
    return home + "/.cache/kiln";
  return "";
}

void Cache::warnOnce(const std::string &message) {
  if (!hasWarned)
    warn(message);
  hasWarned = true;
}

/// Refuses a folder that other users could write: entries hold code that is
/// run.
bool Cache::prepareFolder() {
  if (folder.empty()) {
    warnOnce(
        "no cache: none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return false;
  }
  std::error_code error;
  fs::path parent = fs::path(folder).parent_path();
  if (!parent.empty())
    fs::create_directories(parent, error);
  struct stat status;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    warnOnce("no cache: " + folder + ": " + std::strerror(errno));
    return false;
  }
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    warnOnce("no cache: " + folder + " is not a folder");
    return false;
  }
  if (status.st_uid != geteuid() || (status.st_mode & 022)) {
    warnOnce("no cache: others may write to " + folder);
    return false;
  }
  return true;
}

std::string
Cache::lookUp(const std::string &key,
              const std::function<Status(const std::string &)> &check) {
  struct stat status;
  std::string path = pathOf(key);
  if (folder.empty() || stat(path.c_str(), &status) != 0)
    return "";
  if (!prepareFolder())
    return "";
  Status intact = check(path);
  if (intact.ok())
    return path;
  // Whatever lies there is in the place of an entry, be it a folder.
  std::error_code error;
  fs::remove_all(path, error);
  warnOnce(std::string("corrupt cache entry, ") +
           (error ? "which cannot be removed" : "removed") + ": " +
           intact.message());
  return "";
}

std::string Cache::publish(const std::string &key, const std::string &file) {
  if (!prepareFolder())
    return "";
  std::string path = pathOf(key);
  return report(path, copyAtomically(file, path));
}

std::string Cache::publish(const std::string &key,
                           std::span<const std::byte> bytes) {
  if (!prepareFolder())
    return "";
  std::string path = pathOf(key);
  return report(path, writeAtomically(path, bytes));
}

/// The path, or empty after a failure, which is reported once.
std::string Cache::report(const std::string &path, int error) {
  if (!error)
    return path;
  warnOnce("not cached: " + path + ": " + std::strerror(error));
  return "";
}

/// Whether a name without its ending is that of a hash: another file must not
/// be taken for an entry, and removed.
static bool isKey(const std::string &stem) {
  constexpr std::string_view prefix = "kiln_";
  constexpr size_t digits = 64; // Of SHA-256.
  return stem.starts_with(prefix) && stem.size() == prefix.size() + digits &&
         stem.find_first_not_of("0123456789abcdef", prefix.size()) == stem.npos;
}

std::vector<Cache::Entry> Cache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const fs::directory_entry &file :
       fs::directory_iterator(folder, error)) {
    std::string name = file.path().filename().string();
    std::error_code sizeError;
    uint64_t bytes = file.file_size(sizeError);
    if (!sizeError && isKey(file.path().stem()) && name.ends_with(suffix))
      entries.push_back(
          {file.path().stem().string(), file.path().string(), bytes});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.key < b.key; });
  return entries;
}

void Cache::removeRemains() const {
  if (!folder.empty())
    kiln::removeRemains(folder, "kiln_");
}

/// Whether temporary files of ordinary size fit in a folder.
static bool hasRoom(const std::string &folder) {
  constexpr uint64_t ordinaryBytes = uint64_t{16} << 20;
  PendingFile file(folder + "/kiln_room");
  return file.error() == 0 && file.reserve(ordinaryBytes) == 0;
}

std::string Cache::scratchParent() {
  std::error_code error;
  fs::path otherwise = fs::temp_directory_path(error);
  if (prepareFolder() && hasRoom(folder))
    return folder;
  return error ? "." : otherwise.string();
}

size_t Cache::clear() {
  size_t count = 0;
  for (const Entry &entry : list())
    count += unlink(entry.path.c_str()) == 0;
  removeRemains();
  return count;
}

} // namespace kiln
