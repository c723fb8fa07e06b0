// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/RunFolder.h"
#include "runtime/checkpoint/OutputFile.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

namespace kiln {

namespace fs = std::filesystem;

/// Whether the path still names the descriptor's folder: it may have been
/// renamed before it was locked.
static bool isAt(int folder, const std::string &path) {
  struct stat held, named;
  return ::fstat(folder, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/// The folders of a path that do not exist.
static unsigned countMissing(const fs::path &path) {
  std::error_code error;
  unsigned count = 0;
  for (fs::path folder = path; !folder.empty() && !fs::exists(folder, error);
       folder = folder.parent_path())
    ++count;
  return count;
}

/// Whether standard output or error goes to this file.
static bool isPrintedTo(const fs::path &path) {
  struct stat file, stream;
  if (::stat(path.c_str(), &file) != 0)
    return false;
  for (int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(descriptor, &stream) == 0 && stream.st_dev == file.st_dev &&
        stream.st_ino == file.st_ino)
      return true;
  return false;
}

/// Names of the files in a folder, but for those that this process prints to:
/// a shell has made them for this run.
static std::vector<std::string> listNames(const std::string &path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error))
    if (!isPrintedTo(entry->path()))
      names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Status RunFolder::check(const std::string &path) {
  std::vector<std::string> names = listNames(path);
  if (names.empty() || isRun(path))
    return Status();
  constexpr size_t most = 3;
  std::string found;
  for (size_t i = 0; i < std::min(most, names.size()); ++i)
    found += (i ? ", " : "") + names[i];
  return Status(Code::usage,
                "run folder " + path + ": is no run of kiln and holds " +
                    found + (names.size() > most ? ", ..." : "") +
                    "; give another --run-folder, a new or an empty one");
}

/// The folder of a run inside this one in which another process trains; empty
/// for none.
static std::string findLiveRun(const std::string &path) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->symlink_status(ignored).type() != fs::file_type::directory)
      continue;
    if (entry->path().filename() == checkpointsName) {
      entry.disable_recursion_pending();
      continue;
    }
    int folder = ::open(entry->path().c_str(),
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    bool isLocked = folder >= 0 && ::flock(folder, LOCK_SH | LOCK_NB) != 0 &&
                    errno == EWOULDBLOCK;
    if (folder >= 0)
      ::close(folder);
    if (isLocked)
      return entry->path().string();
  }
  return "";
}

Status
RunFolder::checkSetAside(const std::string &path,
                         const std::map<std::string, std::string> &inputs) {
  auto refuse = [&](const std::string &reason) {
    return Status(Code::usage,
                  "run folder " + path +
                      ": the run there would get another name, but " + reason);
  };
  if (listNames(path).empty())
    return Status();
  if (isInside(".", path))
    return refuse("the working folder is there; give another --run-folder");
  for (const auto &[name, input] : inputs)
    if (isInside(input, path))
      return refuse("it holds " + name + " " + input +
                    "; move that elsewhere, or give another --run-folder");
  std::string live = findLiveRun(path);
  return live.empty() ? Status()
                      : refuse("another process is training in " + live +
                               "; wait for it, or give another --run-folder");
}

Status RunFolder::checkPlace(const std::string &path) {
  std::error_code error;
  fs::path place = path;
  while (place.has_parent_path() && place.has_relative_path() &&
         !fs::exists(fs::symlink_status(place, error)))
    place = place.parent_path();
  if (!fs::exists(fs::symlink_status(place, error)))
    place = ".";
  auto refuse = [&](const char *action, int failure) {
    return Status(Code::io, "run folder " + path + ": cannot " + action + ": " +
                                std::strerror(failure) + otherPlaces);
  };
  bool isThere = fs::equivalent(place, path, error);
  if (!fs::is_directory(place, error))
    return refuse("create", error ? error.value() : ENOTDIR);
  if (::access(place.c_str(), W_OK | X_OK) != 0)
    return refuse(isThere ? "write to it" : "create", errno);
  return Status();
}

/// Without slashes at the end, so that a number can be added.
static std::string stripSlashes(std::string path) {
  while (path.size() > 1 && (path.ends_with('/') || path.ends_with("/.")))
    path.pop_back();
  return path;
}

Expected<RunFolder> RunFolder::open(const std::string &given) {
  std::string path = stripSlashes(given);
  while (true) {
    std::error_code error;
    unsigned missing = countMissing(path);
    fs::create_directories(path, error);
    if (error)
      return Status(Code::io, "run folder " + path +
                                  ": cannot create: " + error.message());
    int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
      return failIo("run folder " + path, "open");
    RunFolder run(path, folder);
    if (::flock(folder, LOCK_EX | LOCK_NB) != 0)
      return errno == EWOULDBLOCK
                 ? Status(Code::usage,
                          "run folder " + path +
                              ": another process is training here; wait for "
                              "it, or give another --run-folder")
                 : failIo("run folder " + path, "lock");
    if (isAt(folder, path)) {
      run.made_ = missing; // Not before: another process may use it.
      if (Status status = check(path); !status.ok())
        return status;
      return run;
    }
  }
}

RunFolder::RunFolder(RunFolder &&other) noexcept
    : path_(std::move(other.path_)), folder_(std::exchange(other.folder_, -1)),
      made_(other.made_) {}

RunFolder &RunFolder::operator=(RunFolder &&other) noexcept {
  std::swap(path_, other.path_);
  std::swap(folder_, other.folder_);
  std::swap(made_, other.made_);
  return *this;
}

RunFolder::~RunFolder() {
  if (folder_ < 0)
    return;
  if (!isAt(folder_, path_)) // It was set aside.
    made_ = 0;
  fs::path folder = path_;
  for (; made_ != 0 && ::rmdir(folder.c_str()) == 0; --made_)
    folder = folder.parent_path();
  ::close(folder_);
}

Status RunFolder::checkWritable() const {
  for (const std::string &folder : {path_, checkpoints()})
    if (::access(folder.c_str(), W_OK | X_OK) != 0 && errno != ENOENT)
      return failIo("run folder " + folder, "write to it");
  return Status();
}

Status RunFolder::checkRoom(uint64_t bytes) const {
  struct statvfs system;
  // The checkpoints may be a link to another disk.
  if (::statvfs(checkpoints().c_str(), &system) != 0 &&
      ::statvfs(path_.c_str(), &system) != 0)
    return Status();
  if (system.f_blocks == 0)
    return Status(); // It has no limit, or does not tell.
  uint64_t blocks = ::geteuid() == 0 ? system.f_bfree : system.f_bavail,
           free = 0;
  if (__builtin_mul_overflow(blocks, system.f_frsize, &free) || free >= bytes)
    return Status();
  return Status(Code::io, "run folder " + path_ +
                              ": one state of this run needs " +
                              std::to_string(bytes) + " bytes, and " +
                              std::to_string(free) + " are free");
}

bool RunFolder::holdsRun() const { return !listNames(path_).empty(); }

Expected<std::string> RunFolder::setAside() {
  if (!holdsRun())
    return std::string();
  std::error_code error;
  // A link to a folder on another disk stays one.
  std::string place = fs::is_symlink(path_, error)
                          ? fs::canonical(path_, error).string()
                          : path_;
  for (unsigned number = 1;; ++number) {
    std::string name = place + "." + std::to_string(number);
    if (::renameat2(AT_FDCWD, place.c_str(), AT_FDCWD, name.c_str(),
                    RENAME_NOREPLACE) == 0) {
      if (place != path_)
        fs::create_directory(place, error);
      Expected<RunFolder> fresh = open(path_);
      if (!fresh.ok())
        return fresh.status();
      *this = std::move(*fresh);
      return name;
    }
    if (errno != EEXIST)
      return failIo(path_, "set an earlier run aside");
  }
}

void RunFolder::removeRemains() const {
  std::vector<std::string> remains;
  for (const std::string &name : listNames(path_))
    if (isRunRemnant(name))
      remains.push_back(name);
  for (const std::string &name : remains)
    ::unlink((path_ + "/" + name).c_str());
}

Status RunFolder::write(const std::string &name,
                        const std::string &text) const {
  return replaceFile(path_ + "/" + name, [&](OutputFile &file) {
    return file.write(std::as_bytes(std::span(text)));
  });
}

} // namespace kiln
