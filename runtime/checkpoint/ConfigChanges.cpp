// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/ConfigChanges.h"

#include <algorithm>
#include <map>
#include <vector>

namespace kiln {

/// Values by dotted path. The canonical text has one key a line, two spaces of
/// indentation for each section around it, and no value after a section's name.
static std::map<std::string, std::string> readKeys(std::string_view text) {
  std::map<std::string, std::string> keys;
  std::vector<std::string> sections; // Their paths, with a dot at the end.
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    size_t begin = std::min(line.find_first_not_of(' '), line.size());
    size_t colon = line.find(':', begin);
    if (colon == line.npos)
      continue;
    sections.resize(std::min(begin / 2, sections.size()));
    std::string path = (sections.empty() ? "" : sections.back()) +
                       std::string(line.substr(begin, colon - begin));
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    if (value.empty())
      sections.push_back(path + ".");
    else
      keys[path] = value;
  }
  return keys;
}

std::string describeChanges(std::string_view before, std::string_view after) {
  std::map<std::string, std::string> old = readKeys(before),
                                     current = readKeys(after);
  std::string text;
  auto add = [&](const std::string &path) {
    auto print = [&](const std::map<std::string, std::string> &keys) {
      auto found = keys.find(path);
      return found == keys.end() ? "absent" : found->second;
    };
    if (print(old) != print(current))
      text += "\n  " + path + " was " + print(old) + ", is " + print(current);
  };
  for (const auto &[path, value] : current)
    add(path);
  for (const auto &[path, value] : old)
    if (!current.contains(path))
      add(path);
  return text;
}

} // namespace kiln
