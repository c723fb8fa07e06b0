// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_DIAGNOSTICS_H
#define KILN_COMPILER_CONFIG_DIAGNOSTICS_H

#include <map>
#include <string>
#include <vector>

namespace kiln {

/// Position in the file, or in the source-th override of the command line
/// (counted from 1). Lines and columns count from 1.
struct Position {
  int source = 0;
  int line = 1;
  int column = 1;

  bool operator<(const Position &other) const;
};

/// Collects every error of one config, so that a user mends them in one go.
class Diagnostics {
public:
  void error(Position position, std::string message);

  bool hasErrors() const { return !errors.empty(); }
  size_t size() const { return errors.size(); }

  /// One line per error, in order of position: the file's first, then the
  /// command line's.
  std::vector<std::string> lines() const;

  /// The lines joined, each ended by a newline.
  std::string text() const;

  /// Names that positions refer to; set by loadConfig.
  std::string file;
  std::vector<std::string> overrides;
  /// Whether the file is a text in which lines and columns can be looked up.
  bool hasPlaces = true;

private:
  // Keeps the order of position, and of reporting at one position.
  std::multimap<Position, std::string> errors;
};

} // namespace kiln

#endif
