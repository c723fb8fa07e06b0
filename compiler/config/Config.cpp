// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Config.h"

#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"

#include <algorithm>

namespace kiln {

std::string Config::print() const {
  std::string text;
  for (const Key &key : schema()) {
    std::string section(key.section());
    bool isSection = key.type == KeyType::Section;
    Presence presence = presenceOf(isSection ? key.path : key.section(), *this);
    if (presence == Presence::Absent ||
        (presence == Presence::None && !isSection))
      continue;
    std::string indent(2 * std::count(key.path.begin(), key.path.end(), '.'),
                       ' ');
    if (isSection && presence == Presence::Given) {
      text += indent + std::string(key.name()) + ":\n";
      continue;
    }
    if (!key.kinds.empty() &&
        !hasChoice(key.kinds, kindOfSection(section, *this)))
      continue;
    std::string value = printValue(key, *this);
    if (!value.empty())
      text += indent + std::string(key.name()) + ": " + value + "\n";
  }
  return text;
}

std::map<std::string, std::string> Config::files() const {
  std::map<std::string, std::string> files;
  Config copy = *this; // Slots are declared on mutable configs.
  for (const Key &key : schema())
    if (key.type == KeyType::Path)
      if (const std::string &path = *std::get<std::string *>(key.slot(copy));
          !path.empty())
        files.emplace(key.path, path);
  return files;
}

} // namespace kiln
