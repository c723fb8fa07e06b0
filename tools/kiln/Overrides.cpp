// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/Overrides.h"

#include "compiler/config/Diagnostics.h"
#include "compiler/config/YamlTree.h"

namespace kiln {

static std::string pathOf(const std::string &override) {
  return override.substr(0, override.find('='));
}

/// Whether a key lies in the section or map with this path.
static bool isBelow(const std::string &key, const std::string &path) {
  return key.starts_with(path + ".");
}

/// Whether it says how long to train.
static bool givesLength(const std::string &override) {
  std::string path = pathOf(override);
  if (path == "training.steps" || path == "training.epochs")
    return true;
  YamlNode value;
  Diagnostics unheard; // Of what is wrong with it the config will tell.
  return path == "training" && path.size() < override.size() &&
         parseYaml(override.substr(path.size() + 1), 0, value, unheard) &&
         value.isMap() && (value.find("steps") || value.find("epochs"));
}

/// Why `later` cannot stand beside `earlier`; empty if it can.
static std::string describeConflict(const std::string &earlier,
                                    const std::string &later) {
  std::string first = pathOf(earlier), second = pathOf(later);
  if (first == second)
    return first + ": given twice, first as '" + earlier +
           "'; wanted one of them";
  if (isBelow(first, second) || isBelow(second, first))
    return second + ": given together with '" + earlier + "', " +
           (isBelow(first, second) ? "a key of it" : "its section") +
           "; wanted one of them";
  return "";
}

std::string findConflicts(const std::vector<std::string> &overrides,
                          bool hasSteps) {
  Diagnostics diagnostics;
  diagnostics.overrides = overrides;
  for (size_t later = 0; later < overrides.size(); ++later) {
    Position position{static_cast<int>(later) + 1, 1, 1};
    for (size_t earlier = 0; earlier < later; ++earlier)
      if (std::string conflict =
              describeConflict(overrides[earlier], overrides[later]);
          !conflict.empty()) {
        diagnostics.error(position, conflict);
        break;
      }
    if (hasSteps && givesLength(overrides[later]))
      diagnostics.error(position, pathOf(overrides[later]) +
                                      ": given together with --steps; wanted "
                                      "one of them");
  }
  return diagnostics.text();
}

} // namespace kiln
