// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/RunFiles.h"
#include "runtime/TemporaryFiles.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/WeightVocabulary.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view oldMark = ".old";

bool areDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c >= '0' && c <= '9';
  });
}

/// A report on a step that was not finite.
bool isReportName(std::string_view name) {
  constexpr std::string_view begin = "report-step-", end = ".json";
  return name.starts_with(begin) && name.ends_with(end) &&
         name.size() > begin.size() + end.size() &&
         areDigits(name.substr(begin.size(),
                               name.size() - begin.size() - end.size()));
}

/// Name without the mark of what is set aside, if it has one.
std::string_view stripSetAside(std::string_view name) {
  size_t at = name.rfind(oldMark);
  if (at == name.npos)
    return name;
  std::string_view number = name.substr(at + oldMark.size());
  bool isMark = number.empty() ||
                (number.starts_with('.') && areDigits(number.substr(1)));
  return isMark ? name.substr(0, at) : name;
}

/// The first bytes of a regular file; nothing if there is no such file. A FIFO
/// must not block.
std::optional<std::string> readStart(const std::string &path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return std::nullopt;
  char bytes[256];
  struct stat status;
  ssize_t count = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode)
                      ? ::read(file, bytes, sizeof(bytes))
                      : -1;
  ::close(file);
  return count < 0 ? std::nullopt
                   : std::optional(std::string(bytes, size_t(count)));
}

/// Whether the text begins with a line of metrics. Others log steps as well,
/// but not in hexadecimal.
bool isMetrics(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  return line.starts_with("{\"step\": ") &&
         line.find("loss_hex\": \"") != line.npos;
}

bool hasCheckpoint(const std::string &folder) {
  CheckpointStore store(folder + "/" + checkpointsName);
  for (const auto &entries : {store.list(), store.listSetAside()})
    if (entries.ok())
      for (const CheckpointStore::Entry &entry : *entries)
        if (isCheckpoint(entry.path))
          return true;
  return false;
}

/// Whether all names in the folder are those of a run, and there is one. A
/// config alone is anybody's.
bool hasOnlyRunFiles(const std::string &folder, bool hasMetrics) {
  std::error_code error;
  fs::directory_iterator entry(folder, error), end;
  bool isBegun = hasMetrics;
  for (; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!isRunFileName(name))
      return false;
    isBegun |= name == checkpointsName && fs::is_empty(entry->path(), error);
  }
  return !error && isBegun;
}

} // namespace

std::string setAsideMark(unsigned time) {
  return std::string(oldMark) + (time > 1 ? "." + std::to_string(time) : "");
}

bool isSetAside(std::string_view name) {
  return stripSetAside(name).size() != name.size();
}

/// Of the files that are replaced at once.
static bool isSmallFileName(std::string_view name) {
  return name == configName || name == vocabularyFileName || isReportName(name);
}

bool isRunRemnant(std::string_view name) {
  std::string_view target = name.substr(0, name.rfind(".tmp-"));
  return isSmallFileName(target) && isTemporaryName(name, target);
}

bool isRunFileName(std::string_view name) {
  return isSmallFileName(name) || isRunRemnant(name) ||
         name == checkpointsName || stripSetAside(name) == metricsName;
}

bool isRun(const std::string &folder) {
  std::optional<std::string> metrics = readStart(folder + "/" + metricsName);
  if (metrics && !metrics->empty())
    return isMetrics(*metrics) || hasCheckpoint(folder);
  return hasCheckpoint(folder) ||
         hasOnlyRunFiles(folder, /*hasMetrics=*/metrics.has_value());
}

static bool isSame(const fs::path &path, const struct stat &folder) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && status.st_dev == folder.st_dev &&
         status.st_ino == folder.st_ino;
}

bool isInside(const std::string &path, const std::string &folder) {
  struct stat status;
  if (::stat(folder.c_str(), &status) != 0)
    return false;
  std::error_code error;
  // By the name too: a link inside the folder moves with it.
  for (fs::path place :
       {fs::absolute(path, error).lexically_normal(), followLinks(path)})
    for (; !place.empty(); place = place.parent_path())
      if (isSame(place, status))
        return true;
      else if (place == place.parent_path())
        break;
  return false;
}

Status checkBelongsToNoRun(const std::string &path,
                           const std::string &ownFolder) {
  auto refuse = [](const std::string &reason) {
    return Status(Code::usage, reason + "; give a file elsewhere");
  };
  fs::path own = followLinks(ownFolder), file = followLinks(path);
  for (fs::path place = file; place.has_relative_path();
       place = place.parent_path()) {
    fs::path folder = place.parent_path();
    if (place != file && isCheckpoint(place.string()))
      return refuse("is in the folder of a checkpoint, which would be damaged");
    std::string name = place.filename().string();
    bool isKept = name == checkpointsName;
    if (!isKept && (place != file || !isRunFileName(name)))
      continue;
    bool isOwn = !ownFolder.empty() && folder == own;
    if (isOwn || isRun(folder.string()))
      return refuse(isKept ? "is in the place of checkpoints of the run " +
                                 folder.string() + ", which would be lost"
                           : "is in the place of a file of the run " +
                                 folder.string() + ", which would be lost");
  }
  if (!ownFolder.empty() && own.string().starts_with(file.string()) &&
      (own == file || own.string()[file.string().size()] == '/'))
    return refuse("is in the place of the run folder " + ownFolder +
                  ", which would be lost");
  return Status();
}

} // namespace kiln
