// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/ModelNames.h"

#include <regex>

namespace kiln {

std::string nameInAnyLayer(const std::string &text) {
  static const std::regex component("(^|[. ])[0-9]+(?=[., ]|$)");
  return std::regex_replace(text, component, "$1*");
}

} // namespace kiln
