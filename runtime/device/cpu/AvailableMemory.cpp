// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/AvailableMemory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace kiln::cpu {

namespace {

constexpr uint64_t unlimited = std::numeric_limits<uint64_t>::max();

/// File names of a version of control groups.
struct GroupFiles {
  const char *folder, *limit, *used, *droppable;
};
constexpr GroupFiles firstVersion = {
    "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
    "total_inactive_file"};
constexpr GroupFiles secondVersion = {"/sys/fs/cgroup", "/memory.max",
                                      "/memory.current", "inactive_file"};

/// The number in a file that holds nothing else, or `otherwise`.
uint64_t readNumber(const std::string &path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t number;
  return file >> number ? number : otherwise;
}

/// The number after a key, of a file with one pair in each line.
uint64_t readEntry(const std::string &path, const std::string &key,
                   uint64_t otherwise) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string found;
    uint64_t number;
    if (words >> found >> number && found == key)
      return number;
  }
  return otherwise;
}

/// Bytes left to a group and its ancestors.
uint64_t leftIn(const std::string &root, const GroupFiles &files,
                std::string group) {
  uint64_t left = unlimited;
  while (true) {
    std::string folder = root + files.folder + group;
    uint64_t limit = readNumber(folder + files.limit, unlimited);
    if (limit != unlimited) {
      uint64_t used = readNumber(folder + files.used, 0);
      uint64_t droppable =
          readEntry(folder + "/memory.stat", files.droppable, 0);
      used -= std::min(used, droppable);
      left = std::min(left, limit - std::min(limit, used));
    }
    if (group.empty())
      return left;
    group.resize(group.rfind('/'));
  }
}

} // namespace

uint64_t availableMemory(const std::string &root) {
  uint64_t kilobytes =
      readEntry(root + "/proc/meminfo", "MemAvailable:", unlimited);
  uint64_t available = kilobytes == unlimited ? unlimited : kilobytes * 1024;
  // Lines of "number:controllers:group"; the second version has no controllers.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    if (group.empty() || group.front() != '/')
      continue;
    if (group == "/")
      group.clear();
    if (controllers == ",,")
      available = std::min(available, leftIn(root, secondVersion, group));
    else if (controllers.find(",memory,") != std::string::npos)
      available = std::min(available, leftIn(root, firstVersion, group));
  }
  return available;
}

} // namespace kiln::cpu
