// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Diagnostics.h"

#include "compiler/config/CanonicalText.h"

#include <tuple>

namespace kiln {

bool Position::operator<(const Position &other) const {
  return std::tie(source, line, column) <
         std::tie(other.source, other.line, other.column);
}

void Diagnostics::error(Position position, std::string message) {
  errors.emplace(position, std::move(message));
}

std::vector<std::string> Diagnostics::lines() const {
  std::vector<std::string> result;
  for (const auto &[at, message] : errors) {
    std::string place =
        at.source == 0
            ? file +
                  (hasPlaces ? ":" + std::to_string(at.line) + ":" +
                                   std::to_string(at.column)
                             : "") +
                  ": error: "
            : "command line: error: '" + overrides[at.source - 1] + "': ";
    // Messages quote the config, which may hold any bytes.
    result.push_back(printableText(place + message));
  }
  return result;
}

std::string Diagnostics::text() const {
  std::string result;
  for (const std::string &line : lines())
    result += line + "\n";
  return result;
}

} // namespace kiln
