// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Cache.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

static constexpr char temporaryMark[] = ".tmp-";

/// Writes all bytes; returns 0 or errno.
static int writeBytes(int target, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(target, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

/// Copies all bytes; returns 0 or errno.
static int copyBytes(int source, int target) {
  std::vector<std::byte> buffer(1 << 20);
  while (true) {
    ssize_t count = read(source, buffer.data(), buffer.size());
    if (count == 0)
      return 0;
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return errno;
    if (int error = writeBytes(
            target, std::span(buffer).first(static_cast<size_t>(count))))
      return error;
  }
}

/// Has `fill(descriptor)`, which returns 0 or errno, write a file beside the
/// target and renames it.
template <typename Fill>
static int writeAtomically(const std::string &target, Fill fill) {
  static std::atomic<unsigned> number = 0;
  std::string temporary = target + temporaryMark + std::to_string(getpid()) +
                          "-" + std::to_string(number++);
  int to =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (to < 0)
    return errno;
  int error = fill(to);
  // Some file systems report a full disk only here.
  if (close(to) != 0 && error == 0)
    error = errno;
  if (error == 0 && rename(temporary.c_str(), target.c_str()) != 0)
    error = errno;
  if (error != 0)
    unlink(temporary.c_str());
  return error;
}

int copyAtomically(const std::string &source, const std::string &target) {
  int from = open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0)
    return errno;
  int error =
      writeAtomically(target, [&](int to) { return copyBytes(from, to); });
  close(from);
  return error;
}

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
              const std::function<bool(const std::string &)> &isIntact) {
  struct stat status;
  std::string path = pathOf(key);
  if (folder.empty() || stat(path.c_str(), &status) != 0)
    return "";
  if (!prepareFolder())
    return "";
  if (isIntact(path))
    return path;
  warnOnce("corrupt cache entry, removed: " + path);
  unlink(path.c_str());
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
  return report(path, writeAtomically(
                          path, [&](int to) { return writeBytes(to, bytes); }));
}

/// The path, or empty after a failure, which is reported once.
std::string Cache::report(const std::string &path, int error) {
  if (!error)
    return path;
  warnOnce("not cached: " + path + ": " + std::strerror(error));
  return "";
}

std::vector<Cache::Entry> Cache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const fs::directory_entry &file :
       fs::directory_iterator(folder, error)) {
    std::string name = file.path().filename().string();
    std::error_code sizeError;
    uint64_t bytes = file.file_size(sizeError);
    if (!sizeError && name.starts_with("kiln_") && name.ends_with(suffix))
      entries.push_back(
          {file.path().stem().string(), file.path().string(), bytes});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.key < b.key; });
  return entries;
}

size_t Cache::clear() {
  size_t count = 0;
  for (const Entry &entry : list())
    count += unlink(entry.path.c_str()) == 0;
  std::error_code error;
  for (const fs::directory_entry &file :
       fs::directory_iterator(folder, error)) {
    std::string name = file.path().filename().string();
    if (name.starts_with("kiln_") && name.find(temporaryMark) != name.npos)
      unlink(file.path().c_str());
  }
  return count;
}

} // namespace kiln
