// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CheckConfig.h"
#include "compiler/config/Config.h"
#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"
#include "compiler/config/Spelling.h"
#include "compiler/config/YamlTree.h"
#include "runtime/FileKind.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

namespace kiln {

namespace {

/// Walks the tree beside the schema: each key written finds its row, each row
/// finds its key or its default.
class Resolver {
public:
  Resolver(const std::string &folder, Diagnostics &diagnostics)
      : folder(folder), diagnostics(diagnostics) {}

  Config resolve(const YamlNode &root) {
    if (root.kind == YamlNode::Kind::Map)
      readSection("", root);
    else if (root.kind == YamlNode::Kind::Scalar ||
             root.kind == YamlNode::Kind::Sequence)
      diagnostics.error(root.position,
                        "found " + root.describe() + ", wanted a map of keys");
    if (root.kind == YamlNode::Kind::Map || root.kind == YamlNode::Kind::Null) {
      fillDefaults();
      checkConfig(config, states, Position(), diagnostics);
    }
    return config;
  }

private:
  static std::string join(std::string_view section, std::string_view name) {
    return section.empty() ? std::string(name)
                           : std::string(section) + "." + std::string(name);
  }

  void readSection(const std::string &section, const YamlNode &node) {
    readKind(section, node);
    std::map<std::string, Position> seen;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const YamlNode &key = node.keys[i];
      if (key.kind == YamlNode::Kind::Invalid)
        continue;
      std::string path = join(section, key.text);
      auto [first, isNew] = seen.insert({key.text, key.position});
      if (!isNew)
        diagnostics.error(key.position, "duplicate key '" + path +
                                            "', first given on line " +
                                            std::to_string(first->second.line));
      else if (key.text != "kind" || section.empty() || !isKnownPath(path))
        readKey(section, path, key, node.items[i]);
    }
  }

  /// The kind comes first, wherever it was written: it says which other keys
  /// the section has.
  void readKind(const std::string &section, const YamlNode &node) {
    const YamlNode *value = node.find("kind");
    const Key *key = findKey(join(section, "kind"), "");
    if (!section.empty() && value && key)
      read(*key, *value);
  }

  void readKey(const std::string &section, const std::string &path,
               const YamlNode &key, const YamlNode &value) {
    const Key *row = findKey(path, kindOf(section));
    if (!row) {
      reportStranger(section, path, key, value);
      return;
    }
    if (row->type != KeyType::Section)
      read(*row, value);
    else
      enterSection(*row, path, key, value);
  }

  void enterSection(const Key &row, const std::string &path,
                    const YamlNode &key, const YamlNode &value) {
    bool isMap = value.isMap(), isOptional = row.fallback == "absent",
         isNone = isOptional && value.kind == YamlNode::Kind::Scalar &&
                  value.text == "none";
    if (isOptional)
      *std::get<Presence *>(row.slot(config)) =
          isNone ? Presence::None : Presence::Given;
    states[path] = {key.position, true, isMap || isNone};
    if (isNone)
      return;
    if (isMap)
      readSection(path, value);
    else if (value.kind != YamlNode::Kind::Invalid)
      diagnostics.error(value.position, path + ": found " + value.describe() +
                                            ", wanted " + row.wanted());
  }

  void read(const Key &row, const YamlNode &value) {
    bool isValid = readValue(row, value, folder, config, diagnostics);
    states[std::string(row.path)] = {value.position, true, isValid};
  }

  /// The kind of a section as far as it is known: "?" when the written value is
  /// not a kind.
  std::string kindOf(std::string_view section) const {
    auto state = states.find(join(section, "kind"));
    if (state != states.end())
      return state->second.isValid ? kindOfSection(section, config) : "?";
    const Key *key = findKey(join(section, "kind"), "");
    return section.empty() || !key ? ""
           : key->isRequired()     ? "?"
                                   : std::string(key->fallback);
  }

  void reportStranger(const std::string &section, const std::string &path,
                      const YamlNode &key, const YamlNode &value) {
    std::string kind = kindOf(section);
    if (isKnownPath(path)) {
      // Without a known kind it is unknown whether the key belongs.
      if (kind != "?")
        diagnostics.error(key.position, "key '" + path +
                                            "' does not apply to " + section +
                                            ".kind = " + kind +
                                            adviseOnKind(section, key, kind));
      return;
    }
    std::string suggestion = suggest(section, path, key.text, kind);
    diagnostics.error(key.position,
                      "unknown key '" + path + "'" + didYouMean(suggestion));
    if (suggestion.empty() || states.contains(suggestion))
      return;
    // Counts as the suggested key, so that this is not also reported missing.
    states[suggestion] = {key.position, false, false};
    const Key *row = findKey(suggestion, "");
    if (row && row->type == KeyType::Section && value.isMap())
      readSection(suggestion, value);
  }

  /// The way out if a kind on the command line does not fit the file's section.
  std::string adviseOnKind(const std::string &section, const YamlNode &key,
                           const std::string &kind) const {
    auto state = states.find(join(section, "kind"));
    bool isForeign = key.position.source == 0 && state != states.end() &&
                     state->second.position.source != 0;
    return isForeign ? "; '" + section + "={kind: " + kind +
                           "}' leaves out the other keys of the section"
                     : "";
  }

  /// The nearest key of the same section; failing that, the nearest anywhere.
  std::string suggest(const std::string &section, const std::string &path,
                      const std::string &name, const std::string &kind) const {
    std::vector<std::string> siblings, all;
    for (const Key &key : schema()) {
      if (key.section() == section &&
          (key.kinds.empty() || kind == "?" || hasChoice(key.kinds, kind)))
        siblings.emplace_back(key.name());
      std::string other = kindOf(key.section());
      if (key.kinds.empty() || other == "?" || hasChoice(key.kinds, other))
        all.emplace_back(key.path);
    }
    std::string sibling = nearestWord(name, siblings);
    if (!sibling.empty())
      return join(section, sibling);
    for (const std::string &candidate : all)
      if (candidate.ends_with("." + name))
        return candidate;
    // A dotted path in one word, as in overrides, is compared in full.
    return name.find('.') == name.npos ? "" : nearestWord(path, all);
  }

  void fillDefaults() {
    for (const Key &key : schema()) {
      std::string path(key.path), section(key.section());
      if (key.type == KeyType::Section || states.contains(path))
        continue;
      if (!key.kinds.empty() && !hasChoice(key.kinds, kindOf(section)))
        continue;
      if (isSectionBroken(section) || !hasSection(section, config))
        continue;
      if (key.isRequired())
        diagnostics.error(sectionPosition(section),
                          "missing key '" + path + "' (" +
                              std::string(key.summary) + ")");
      else if (key.hasDefault())
        fillDefault(key);
    }
  }

  void fillDefault(const Key &key) {
    YamlNode node;
    Diagnostics own;
    bool isValid = parseYaml(std::string(key.fallback), 0, node, own) &&
                   readValue(key, node, folder, config, own);
    states[std::string(key.path)] = {sectionPosition(key.section()), false,
                                     isValid};
  }

  /// A section that is no map was reported; its missing keys are not.
  bool isSectionBroken(std::string_view section) const {
    auto state = states.find(section);
    return state != states.end() && state->second.isWritten &&
           !state->second.isValid;
  }

  Position sectionPosition(std::string_view section) const {
    auto state = states.find(section);
    return state == states.end() ? Position() : state->second.position;
  }

  const std::string &folder;
  Diagnostics &diagnostics;
  Config config;
  KeyStates states;
};

/// Of two keys that exclude each other, the one on the command line replaces
/// the one in the file. A key's own position is that of its first value, so the
/// value's tells where it was given.
void dropAlternative(const std::string &path, YamlNode &root) {
  std::string other = path == "training.steps"    ? "epochs"
                      : path == "training.epochs" ? "steps"
                                                  : "";
  YamlNode *training = root.find("training");
  if (other.empty() || !training)
    return;
  for (size_t i = 0; i < training->keys.size(); ++i)
    if (training->keys[i].text == other &&
        training->items[i].position.source == 0) {
      training->keys.erase(training->keys.begin() + std::ptrdiff_t(i));
      training->items.erase(training->items.begin() + std::ptrdiff_t(i));
      return;
    }
}

/// Stores the value of one override at its path, over the file's value.
void applyOverride(const std::string &text, int source, YamlNode &root,
                   Diagnostics &diagnostics) {
  Position position{source, 1, 1};
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    diagnostics.error(position, "wanted key=value, such as training.steps=100");
    return;
  }
  YamlNode value;
  if (!parseYaml(text.substr(equals + 1), source, value, diagnostics))
    return;
  std::string path = text.substr(0, equals);
  YamlNode *node = &root;
  for (size_t start = 0; start <= path.size();) {
    size_t end = std::min(path.find('.', start), path.size());
    if (!node->isMap()) {
      *node = YamlNode();
      node->kind = YamlNode::Kind::Map;
      node->position = position;
    }
    std::string name = path.substr(start, end - start);
    YamlNode *child = node->find(name);
    if (!child) {
      YamlNode key;
      key.kind = YamlNode::Kind::Scalar;
      key.text = name;
      key.position = position;
      node->keys.push_back(std::move(key));
      child = &node->items.emplace_back();
      child->position = position;
    }
    node = child;
    start = end + 1;
  }
  *node = std::move(value);
  dropAlternative(path, root);
}

std::optional<Config> parseChecked(const std::string &text,
                                   const std::string &name,
                                   const std::vector<std::string> &overrides,
                                   Diagnostics &diagnostics) {
  if (text.size() > maximumConfigBytes) {
    diagnostics.error({}, "found " + std::to_string(text.size()) +
                              " bytes, wanted at most " +
                              std::to_string(maximumConfigBytes));
    return std::nullopt;
  }
  YamlNode root;
  bool isParsed = parseYaml(text, 0, root, diagnostics);
  // Without the file's tree, overrides cannot be checked.
  if (!isParsed)
    return std::nullopt;
  for (size_t i = 0; i < overrides.size(); ++i)
    applyOverride(overrides[i], static_cast<int>(i) + 1, root, diagnostics);
  std::string folder = std::filesystem::path(name).parent_path().string();
  Config config = Resolver(folder, diagnostics).resolve(root);
  if (diagnostics.hasErrors())
    return std::nullopt;
  return config;
}

} // namespace

std::optional<Config> parseConfig(const std::string &text,
                                  const std::string &name,
                                  const std::vector<std::string> &overrides,
                                  Diagnostics &diagnostics) {
  diagnostics.file = name;
  diagnostics.overrides = overrides;
  try {
    return parseChecked(text, name, overrides, diagnostics);
  } catch (const std::exception &exception) {
    diagnostics.error({},
                      std::string("could not be read: ") + exception.what());
    return std::nullopt;
  }
}

std::optional<Config> loadConfig(const std::string &path,
                                 const std::vector<std::string> &overrides,
                                 Diagnostics &diagnostics) {
  diagnostics.file = path;
  diagnostics.overrides = overrides;
  // To open a FIFO would wait for a writer, and it cannot be read twice.
  if (std::string other = describeNonFile(path); !other.empty()) {
    diagnostics.error({}, "found " + other + ", wanted a config file");
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    diagnostics.error({}, std::strerror(errno));
    return std::nullopt;
  }
  // Reading one byte more than allowed detects a file that is too long.
  std::string text(maximumConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return parseConfig(text, path, overrides, diagnostics);
}

} // namespace kiln
