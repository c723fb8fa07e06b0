// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_YAML_TREE_H
#define KILN_COMPILER_CONFIG_YAML_TREE_H

#include "compiler/config/Diagnostics.h"

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// YAML as written, with positions. yaml-cpp's own nodes drop duplicate keys
/// and do not distinguish quoted text from plain.
struct YamlNode {
  /// Invalid: reported already; readers report nothing more.
  enum class Kind { Null, Scalar, Sequence, Map, Invalid };

  Kind kind = Kind::Null;
  bool quoted = false;
  std::string text;
  Position position;
  std::vector<YamlNode> keys;  // of a map, in the order written
  std::vector<YamlNode> items; // of a sequence, or the values of a map

  bool isMap() const { return kind == Kind::Map; }

  /// The value of the first such key of a map, or null.
  YamlNode *find(std::string_view key);
  const YamlNode *find(std::string_view key) const;

  /// As it appears in an error: 'abc', nothing, a list, a map.
  std::string describe() const;
};

/// Limits on what a config may be: it may have been downloaded.
constexpr size_t maximumConfigBytes = 1 << 20;
constexpr size_t maximumConfigDepth = 64;

/// Parses one YAML document. Syntax errors, anchors, aliases, tags, keys that
/// are not scalars and excessive depth are reported. Returns false when nothing
/// useful could be parsed.
bool parseYaml(const std::string &text, int source, YamlNode &root,
               Diagnostics &diagnostics);

} // namespace kiln

#endif
