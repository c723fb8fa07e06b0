// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Config.h"

#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"

#include <algorithm>

namespace kiln {

static std::string printKeys(const Config &config, bool hasSettings) {
  std::string text;
  for (const Key &key : schema()) {
    if (key.isSetting && !hasSettings)
      continue;
    std::string section(key.section());
    bool isSection = key.type == KeyType::Section;
    Presence presence =
        presenceOf(isSection ? key.path : key.section(), config);
    // To leave a section out or to forbid it makes no other program.
    if (presence == Presence::Absent ||
        (presence == Presence::None && !(isSection && hasSettings)))
      continue;
    std::string indent(2 * std::count(key.path.begin(), key.path.end(), '.'),
                       ' ');
    if (isSection && presence == Presence::Given) {
      bool isProgram = !hasSettings && key.fallback == "absent";
      text +=
          indent + std::string(key.name()) + (isProgram ? ": given\n" : ":\n");
      continue;
    }
    if (!key.kinds.empty() &&
        !hasChoice(key.kinds, kindOfSection(section, config)))
      continue;
    std::string value = printValue(key, config);
    if (!value.empty())
      text += indent + std::string(key.name()) + ": " + value + "\n";
  }
  return text;
}

std::string Config::print() const {
  return printKeys(*this, /*hasSettings=*/true);
}

std::string Config::printProgram() const {
  return printKeys(*this, /*hasSettings=*/false);
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
