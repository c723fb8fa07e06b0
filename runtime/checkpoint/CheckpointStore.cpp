// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/TemporaryFiles.h"
#include "runtime/checkpoint/RunFiles.h"
#include "runtime/checkpoint/WeightVocabulary.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <tuple>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view prefix = "step-", latest = "LATEST";

/// The step of a name such as "step-000120", and what follows it.
struct StepName {
  uint64_t step;
  std::string_view rest;
};
std::optional<StepName> parseName(std::string_view name) {
  if (!name.starts_with(prefix))
    return std::nullopt;
  name.remove_prefix(prefix.size());
  uint64_t step = 0;
  const char *last = name.data() + name.size();
  auto [end, error] = std::from_chars(name.data(), last, step);
  if (error != std::errc())
    return std::nullopt;
  return StepName{step, std::string_view(end, size_t(last - end))};
}

/// Whether a save that did not end may have left this name.
bool isRemnant(std::string_view name) {
  std::optional<StepName> parsed = parseName(name);
  return isTemporaryName(
      name,
      parsed ? name.substr(0, name.size() - parsed->rest.size()) : latest);
}

/// Removes a folder with the files that Kiln writes into it, and leaves it if
/// there are others. Returns whether it is gone.
bool removeOwnFiles(const std::string &folder) {
  for (const char *name :
       {manifestName, modelFileName, optimizerFileName, vocabularyFileName})
    ::unlink((folder + "/" + name).c_str());
  return ::rmdir(folder.c_str()) == 0 || errno == ENOENT;
}

/// Removes a checkpoint. It loses its name first, so that being killed in the
/// middle leaves no checkpoint that looks damaged.
void removeCheckpoint(const std::string &path) {
  std::string unnamed = makeTemporaryName(path);
  if (::rename(path.c_str(), unnamed.c_str()) == 0 && !removeOwnFiles(unnamed))
    (void)!::rename(unnamed.c_str(), path.c_str()); // The rest is not ours.
}

/// `io` for a folder that is there and cannot be read.
template <typename Function>
Status forEachEntry(const std::string &folder, Function function) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    function(entry->path());
  if (!error || error == std::errc::no_such_file_or_directory ||
      error == std::errc::not_a_directory)
    return Status();
  return failIo(folder, "read", error.value());
}

/// A link for people; no code reads it.
Status pointLatest(const std::string &folder, const std::string &path) {
  fs::path link = fs::path(folder) / latest;
  std::string made = makeTemporaryName(link.string());
  std::error_code error;
  fs::file_type type = fs::symlink_status(link, error).type();
  if (type != fs::file_type::symlink && type != fs::file_type::not_found)
    return Status(Code::io, link.string() + ": is no link, and stays");
  fs::create_symlink(fs::path(path).filename(), made, error);
  if (!error)
    fs::rename(made, link, error);
  if (!error)
    return Status();
  ::unlink(made.c_str());
  return Status(Code::io, link.string() +
                              ": cannot point to the newest checkpoint: " +
                              error.message());
}

} // namespace

CheckpointStore CheckpointStore::ofRun(const std::string &path) {
  std::error_code error;
  std::string inside = (fs::path(path) / checkpointsName).string();
  fs::file_type type = fs::status(inside, error).type();
  // One that cannot be looked at has a reason, which reading it gives.
  bool isInside =
      type == fs::file_type::directory || type == fs::file_type::none;
  return CheckpointStore(isInside ? inside : path);
}

std::string CheckpointStore::pathOf(uint64_t step) const {
  char name[32];
  std::snprintf(name, sizeof(name), "step-%06" PRIu64, step);
  return folder_ + "/" + name;
}

template <typename Accept>
Expected<CheckpointStore::Entries> CheckpointStore::list(Accept accept) const {
  Entries entries;
  Status status = forEachEntry(folder_, [&](const fs::path &path) {
    std::string name = path.filename().string();
    std::optional<StepName> parsed = parseName(name);
    if (parsed && accept(parsed->rest))
      entries.push_back({parsed->step, path.string()});
  });
  if (!status.ok())
    return status;
  // A greater number at the end makes a longer path, or a later one.
  auto key = [](const Entry &entry) {
    return std::make_tuple(entry.step, entry.path.size(),
                           std::cref(entry.path));
  };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry &a, const Entry &b) { return key(a) < key(b); });
  return entries;
}

Expected<CheckpointStore::Entries> CheckpointStore::list() const {
  return list([](std::string_view rest) { return rest.empty(); });
}

Expected<CheckpointStore::Entries> CheckpointStore::listSetAside() const {
  return list(isSetAside);
}

Expected<std::optional<Checkpoint>>
CheckpointStore::openNewest(const Warn &warn) const {
  Expected<Entries> entries = list();
  if (!entries.ok())
    return entries.status();
  for (auto entry = entries->rbegin(); entry != entries->rend(); ++entry) {
    Expected<Checkpoint> checkpoint = Checkpoint::open(entry->path);
    if (checkpoint.ok())
      return std::optional(std::move(*checkpoint));
    if (checkpoint.status().code() == Code::io)
      return Status(Code::io, checkpoint.status().message() +
                                  "; it may be intact, so that no older "
                                  "checkpoint is taken in its place");
    warn(checkpoint.status().message() + "; looking for an older checkpoint");
  }
  return std::optional<Checkpoint>();
}

void CheckpointStore::removeRemains() const {
  std::vector<std::string> remains;
  (void)forEachEntry(folder_, [&](const fs::path &path) {
    if (isRemnant(path.filename().string()))
      remains.push_back(path.string());
  });
  for (const std::string &path : remains)
    if (std::error_code error; fs::is_symlink(path, error))
      ::unlink(path.c_str());
    else
      removeOwnFiles(path);
}

Status CheckpointStore::setAsideAfter(uint64_t step,
                                      const std::string &mark) const {
  Expected<Entries> entries = list();
  if (!entries.ok())
    return entries.status();
  for (const Entry &entry : *entries)
    if (entry.step > step &&
        ::renameat2(AT_FDCWD, entry.path.c_str(), AT_FDCWD,
                    (entry.path + mark).c_str(), RENAME_NOREPLACE) != 0)
      return failIo(entry.path, "set it aside");
  return Status();
}

/// Renames a finished folder to its final path, in one atomic exchange if an
/// earlier course of the run left a checkpoint there.
Status CheckpointStore::replace(const std::string &temporary,
                                const std::string &path,
                                const Warn &warn) const {
  if (::rename(temporary.c_str(), path.c_str()) == 0)
    return Status();
  if ((errno != ENOTEMPTY && errno != EEXIST) ||
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(),
                  RENAME_EXCHANGE) != 0)
    return failIo(path, "rename a finished checkpoint to it");
  if (removeOwnFiles(temporary))
    return Status();
  for (unsigned time = 1;; ++time) {
    std::string kept = path + setAsideMark(time);
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, kept.c_str(),
                    RENAME_NOREPLACE) == 0)
      warn(path + ": held files of others, which are now in " + kept);
    else if (errno == EEXIST)
      continue;
    return Status();
  }
}

Status CheckpointStore::save(const Manifest &manifest,
                             std::vector<TensorSource> weights,
                             std::vector<TensorSource> others, uint64_t keep,
                             const Warn &warn,
                             const std::string &vocabulary) const {
  std::string path = pathOf(manifest.step);
  std::string temporary = makeTemporaryName(path);
  std::error_code error;
  fs::create_directories(temporary, error);
  if (error)
    return Status(Code::io, path + ": cannot create: " + error.message());
  Status status = writeCheckpoint(temporary, path, manifest, std::move(weights),
                                  std::move(others), vocabulary);
  if (status.ok())
    status = replace(temporary, path, warn);
  if (!status.ok()) {
    removeOwnFiles(temporary);
    return status;
  }
  if (status = syncFolder(folder_); !status.ok())
    return status;
  if (Status pointed = pointLatest(folder_, path); !pointed.ok())
    warn(pointed.message());
  Expected<Entries> entries = list();
  if (!entries.ok()) {
    warn(entries.status().message() + "; older checkpoints stay");
    return Status();
  }
  std::erase_if(*entries,
                [](const Entry &entry) { return !isCheckpoint(entry.path); });
  for (size_t i = 0; entries->size() - i > keep; ++i)
    removeCheckpoint((*entries)[i].path);
  return Status();
}

bool isCheckpoint(const std::string &path) {
  std::error_code error;
  return fs::exists(fs::path(path) / manifestName, error);
}

/// The runs in a folder, which may be that of all runs.
static std::string listRuns(const std::string &folder) {
  constexpr size_t most = 5;
  std::vector<std::string> runs;
  (void)forEachEntry(folder, [&](const fs::path &path) {
    if (isRun(path.string()))
      runs.push_back(path.string());
  });
  std::sort(runs.begin(), runs.end());
  std::string text;
  for (size_t i = 0; i < std::min(most, runs.size()); ++i)
    text += (i ? ", " : "") + runs[i];
  return text + (runs.size() > most ? ", ..." : "");
}

Status failWithoutCheckpoint(const std::string &path) {
  auto reject = [&](const std::string &found) {
    return Status(Code::inputRejected, path + ": " + found);
  };
  const char *wanted = ", wanted that of a checkpoint or of a run";
  fs::path place = path;
  if (!place.has_filename())
    place = place.parent_path();
  std::error_code error;
  bool isOfRun = place.filename() == checkpointsName &&
                 isRun((place.parent_path() / "").string());
  if (isOfRun || isRun(path))
    return reject("holds no intact checkpoint; a run saves one when it ends, "
                  "unless its config has 'checkpoint: none', and on the way "
                  "with checkpoint.every=N: train again");
  if (!fs::exists(path, error))
    return reject(std::string("no such folder") + wanted);
  if (!fs::is_directory(path, error))
    return reject(std::string("is a file and no folder") + wanted);
  if (std::string runs = listRuns(path); !runs.empty())
    return reject("is no run, but holds some; wanted one of " + runs);
  return reject(std::string("is another folder") + wanted);
}

} // namespace kiln
