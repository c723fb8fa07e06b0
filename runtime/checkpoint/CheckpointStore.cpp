// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/CheckpointStore.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step-";
constexpr std::string_view temporaryMark = ".tmp-";

/// The step of a name such as "step-000120"; nothing for other names.
std::optional<uint64_t> stepOf(std::string_view name) {
  if (!name.starts_with(prefix))
    return std::nullopt;
  name.remove_prefix(prefix.size());
  uint64_t step = 0;
  auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size())
    return std::nullopt;
  return step;
}

void removeTree(const std::string &path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// Removes a checkpoint. It loses its name first, so that being killed in the
/// middle leaves no checkpoint that looks damaged.
void removeCheckpoint(const std::string &path) {
  std::string unnamed = path + std::string(temporaryMark) + "removed";
  std::error_code ignored;
  fs::rename(path, unnamed, ignored);
  removeTree(unnamed);
}

template <typename Function>
void forEachEntry(const std::string &folder, Function function) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    function(entry->path());
}

/// Renames a finished folder to its final path, in one atomic exchange if an
/// earlier course of the run left a checkpoint there.
Status commit(const std::string &temporary, const std::string &path) {
  if (::rename(temporary.c_str(), path.c_str()) == 0)
    return Status();
  if ((errno == ENOTEMPTY || errno == EEXIST) &&
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(),
                  RENAME_EXCHANGE) == 0) {
    removeTree(temporary);
    return Status();
  }
  return failIo(path, "rename a finished checkpoint to it");
}

/// A link for people; no code reads it.
void pointLatest(const std::string &folder, const std::string &path) {
  std::error_code ignored;
  fs::path link = fs::path(folder) / "LATEST", made = link;
  made += temporaryMark;
  fs::remove(made, ignored);
  fs::create_symlink(fs::path(path).filename(), made, ignored);
  fs::rename(made, link, ignored);
}

} // namespace

CheckpointStore CheckpointStore::ofRun(const std::string &path) {
  std::error_code error;
  std::string inside = (fs::path(path) / "checkpoints").string();
  return CheckpointStore(fs::is_directory(inside, error) ? inside : path);
}

std::string CheckpointStore::pathOf(uint64_t step) const {
  char name[32];
  std::snprintf(name, sizeof(name), "step-%06" PRIu64, step);
  return folder_ + "/" + name;
}

std::vector<CheckpointStore::Entry> CheckpointStore::list() const {
  std::vector<Entry> entries;
  forEachEntry(folder_, [&](const fs::path &path) {
    if (std::optional<uint64_t> step = stepOf(path.filename().string()))
      entries.push_back({*step, path.string()});
  });
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.step < b.step; });
  return entries;
}

std::optional<Checkpoint> CheckpointStore::openNewest(const Warn &warn) const {
  std::vector<Entry> entries = list();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    Expected<Checkpoint> checkpoint = Checkpoint::open(entry->path);
    if (checkpoint.ok())
      return std::move(*checkpoint);
    warn(checkpoint.status().message() + "; looking for an older checkpoint");
  }
  return std::nullopt;
}

void CheckpointStore::removeRemains() const {
  std::vector<std::string> remains;
  forEachEntry(folder_, [&](const fs::path &path) {
    if (path.filename().string().find(temporaryMark) != std::string::npos)
      remains.push_back(path.string());
  });
  for (const std::string &path : remains)
    removeTree(path);
}

size_t CheckpointStore::setAsideAfter(uint64_t step) const {
  size_t count = 0;
  for (const Entry &entry : list())
    if (entry.step > step) {
      removeCheckpoint(entry.path + ".old");
      std::error_code ignored;
      fs::rename(entry.path, entry.path + ".old", ignored);
      ++count;
    }
  return count;
}

Status CheckpointStore::save(const Manifest &manifest,
                             std::vector<TensorSource> weights,
                             std::vector<TensorSource> others, uint64_t keep,
                             const std::string &vocabulary) const {
  std::string path = pathOf(manifest.step);
  std::string temporary =
      path + std::string(temporaryMark) + std::to_string(::getpid());
  removeTree(temporary);
  std::error_code error;
  fs::create_directories(temporary, error);
  if (error)
    return Status(Code::io, temporary + ": cannot create: " + error.message());
  Status status = writeCheckpoint(temporary, manifest, std::move(weights),
                                  std::move(others), vocabulary);
  if (status.ok())
    status = commit(temporary, path);
  if (!status.ok()) {
    removeTree(temporary);
    return status;
  }
  if (status = syncFolder(folder_); !status.ok())
    return status;
  pointLatest(folder_, path);
  std::vector<Entry> entries = list();
  for (size_t i = 0; entries.size() - i > keep; ++i)
    removeCheckpoint(entries[i].path);
  return Status();
}

bool isCheckpoint(const std::string &path) {
  std::error_code error;
  return fs::exists(fs::path(path) / manifestName, error);
}

Status failWithoutCheckpoint(const std::string &path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return Status(Code::inputRejected,
                  path + ": no such folder, wanted that of a checkpoint or of "
                         "a run");
  return Status(Code::inputRejected,
                path + ": holds no intact checkpoint; a run saves one when it "
                       "ends, unless its config has 'checkpoint: none', and on "
                       "the way with checkpoint.every=N: train again");
}

} // namespace kiln
