// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/ReadValue.h"

#include "compiler/config/CanonicalText.h"
#include "compiler/config/Spelling.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <sched.h>
#include <thread>

namespace kiln {

int64_t availableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    return CPU_COUNT(&set);
  return std::max(1u, std::thread::hardware_concurrency());
}

namespace {

bool isPlain(const YamlNode &node) {
  return node.kind == YamlNode::Kind::Scalar && !node.quoted;
}

/// Words may be quoted, as any YAML text.
bool isWord(const YamlNode &node, std::string_view word) {
  return node.kind == YamlNode::Kind::Scalar && node.text == word;
}

template <typename T> std::optional<T> parseWhole(const std::string &text) {
  T value;
  const char *end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end)
    return std::nullopt;
  return value;
}

std::optional<int64_t> parseInteger(const YamlNode &node, const Key &key) {
  if (!isPlain(node))
    return std::nullopt;
  std::optional<int64_t> value = parseWhole<int64_t>(node.text);
  // As a double, a number above 2^53 may be rounded to the limit.
  bool isLimited = key.maximum < 0x1p63;
  if (!value || *value < static_cast<int64_t>(key.minimum) ||
      (isLimited && *value > static_cast<int64_t>(key.maximum)))
    return std::nullopt;
  return value;
}

std::optional<double> parseNumber(const YamlNode &node, const Key &key) {
  if (!isPlain(node))
    return std::nullopt;
  std::optional<double> value = parseWhole<double>(node.text);
  if (!value || !std::isfinite(*value) || *value < key.minimum ||
      *value > key.maximum)
    return std::nullopt;
  return value;
}

/// "2GiB", "512 MiB", "1000000": decimal and binary units.
std::optional<int64_t> parseBytes(const YamlNode &node) {
  if (!isPlain(node))
    return std::nullopt;
  const std::string &text = node.text;
  size_t digits = text.find_first_not_of("0123456789.");
  digits = std::min(digits, text.size());
  std::optional<double> number = parseWhole<double>(text.substr(0, digits));
  size_t start = std::min(text.find_first_not_of(' ', digits), text.size());
  std::string unit = text.substr(start);
  static const std::pair<const char *, double> units[] = {
      {"", 1},         {"B", 1},       {"KB", 1e3},     {"MB", 1e6},
      {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
      {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto &[name, factor] : units)
    if (number && unit == name && *number * factor >= 1 &&
        *number * factor < 0x1p62)
      return static_cast<int64_t>(*number * factor);
  return std::nullopt;
}

/// Reads one value; a class only so that its methods share the diagnostics.
class ValueReader {
public:
  ValueReader(const Key &key, const YamlNode &node, const std::string &folder,
              Config &config, Diagnostics &diagnostics)
      : key(key), node(node), folder(folder), slot(key.slot(config)),
        diagnostics(diagnostics) {}

  bool read() {
    switch (key.type) {
    case KeyType::Section:
      return true;
    case KeyType::Integer:
      return storeParsed<int64_t>(parseInteger(node, key));
    case KeyType::Number:
      return storeParsed<double>(parseNumber(node, key));
    case KeyType::IntegerList:
      return readIntegerList();
    case KeyType::Pair:
      return readPair();
    case KeyType::NumberList:
      return readNumberList();
    case KeyType::Boolean:
      return readBoolean();
    case KeyType::Choice:
      return readChoice();
    case KeyType::AutoChoice:
      return isWord(node, "auto") ? storeWord("auto") : readChoice();
    case KeyType::Probability:
      return readProbability();
    case KeyType::Path:
      return readPath();
    case KeyType::MicroBatch:
      return readMicroBatch();
    case KeyType::Every:
      return readOr("epoch", parseInteger(node, key));
    case KeyType::Threads:
      return readThreads();
    case KeyType::Bytes:
      return readOr("auto", parseBytes(node));
    case KeyType::Mesh:
      return readMesh();
    case KeyType::Precision:
      return readPrecision();
    }
    return false;
  }

private:
  bool report(const std::string &message) {
    diagnostics.error(node.position, std::string(key.path) + ": " + message);
    return false;
  }

  bool reportWanted(const YamlNode &found) {
    diagnostics.error(found.position, std::string(key.path) + ": found " +
                                          found.describe() + ", wanted " +
                                          key.wanted());
    return false;
  }

  template <typename T> bool storeParsed(const std::optional<T> &value) {
    if (!value)
      return reportWanted(node);
    *std::get<T *>(slot) = *value;
    return true;
  }

  bool readIntegerList() {
    auto &values = *std::get<std::vector<int64_t> *>(slot);
    values.clear();
    bool isList = node.kind == YamlNode::Kind::Sequence;
    if (isList && node.items.empty()) {
      diagnostics.error(node.position, std::string(key.path) +
                                           ": found an empty list, wanted " +
                                           key.wanted());
      return false;
    }
    bool isValid = true;
    for (const YamlNode &item : isList ? node.items : std::vector{node}) {
      if (item.kind == YamlNode::Kind::Invalid) {
        isValid = false;
        continue;
      }
      std::optional<int64_t> value = parseInteger(item, key);
      if (value)
        values.push_back(*value);
      else
        isValid = reportWanted(item);
    }
    return isValid;
  }

  bool readPair() {
    auto &values = *std::get<std::vector<double> *>(slot);
    values.clear();
    if (node.kind != YamlNode::Kind::Sequence)
      return reportWanted(node);
    if (node.items.size() != 2)
      return report("found a list of " + std::to_string(node.items.size()) +
                    ", wanted " + key.wanted());
    for (const YamlNode &item : node.items) {
      std::optional<double> value = parseNumber(item, key);
      if (!value || *value >= key.maximum)
        return reportWanted(item);
      values.push_back(*value);
    }
    return true;
  }

  bool readNumberList() {
    auto &values = *std::get<std::vector<double> *>(slot);
    values.clear();
    if (isWord(node, "auto"))
      return true;
    if (node.kind != YamlNode::Kind::Sequence || node.items.empty())
      return reportWanted(node);
    bool isValid = true;
    for (const YamlNode &item : node.items) {
      std::optional<double> value = parseNumber(item, key);
      if (value && *value > 0)
        values.push_back(*value);
      else
        isValid = reportWanted(item);
    }
    return isValid;
  }

  bool readBoolean() {
    if (!isPlain(node) || (!isWord(node, "true") && !isWord(node, "false")))
      return reportWanted(node);
    *std::get<bool *>(slot) = node.text == "true";
    return true;
  }

  bool readChoice() {
    if (node.kind != YamlNode::Kind::Scalar)
      return reportWanted(node);
    // A choice that is not available yet is stored all the same, so that keys
    // that depend on it can be checked.
    if (hasChoice(key.unavailable, node.text))
      report("'" + node.text + "' is not available yet; wanted " +
             key.wanted());
    std::vector<std::string> words = splitChoices(key.choices);
    for (const std::string &word : words)
      if (word == node.text)
        return storeWord(word);
    if (hasChoice(key.unavailable, node.text))
      return false;
    return report("found " + node.describe() + ", wanted " + key.wanted() +
                  didYouMean(nearestWord(node.text, words)));
  }

  bool storeWord(std::string_view word) {
    WordSlot &member = std::get<WordSlot>(slot);
    member.store(member.object, word);
    return true;
  }

  bool readPath() {
    if (node.kind != YamlNode::Kind::Scalar || node.text.empty() ||
        node.text.find('\0') != std::string::npos)
      return reportWanted(node);
    std::filesystem::path path = node.text;
    // Paths on the command line are relative to the working directory.
    if (node.position.source == 0 && path.is_relative())
      path = std::filesystem::path(folder) / path;
    *std::get<std::string *>(slot) =
        std::filesystem::absolute(path).lexically_normal().string();
    return true;
  }

  bool readMicroBatch() {
    using Kind = MicroBatchRequest::Kind;
    MicroBatchRequest &request = *std::get<MicroBatchRequest *>(slot);
    request = MicroBatchRequest();
    if (node.isMap())
      return readRange(request);
    if (isWord(node, "none") || isWord(node, "auto") ||
        isWord(node, "explore")) {
      request.kind = node.text == "none"   ? Kind::None
                     : node.text == "auto" ? Kind::Auto
                                           : Kind::Explore;
      return true;
    }
    std::optional<int64_t> size = parseInteger(node, key);
    if (!size)
      return reportWanted(node);
    request = MicroBatchRequest::ofSize(*size);
    return true;
  }

  bool readRange(MicroBatchRequest &request) {
    const YamlNode *least = node.find("min"), *most = node.find("max");
    std::optional<int64_t> from, to;
    if (least && most && node.keys.size() == 2) {
      from = parseInteger(*least, key);
      to = parseInteger(*most, key);
    }
    if (!from || !to || *from > *to)
      return report("found a map, wanted {min: a, max: b} with positive "
                    "integers, min at most max");
    request = {MicroBatchRequest::Kind::Range, *from, *to};
    return true;
  }

  /// A number, or a word that stands for 0.
  bool readOr(std::string_view word, const std::optional<int64_t> &number) {
    if (!isWord(node, word))
      return storeParsed<int64_t>(number);
    *std::get<int64_t *>(slot) = 0;
    return true;
  }

  bool readProbability() {
    std::optional<double> value = parseNumber(node, key);
    return storeParsed<double>(value && *value < 1 ? value : std::nullopt);
  }

  bool readThreads() {
    std::optional<int64_t> value = parseInteger(node, key);
    if (value && *value > 1024)
      return report("found " + node.describe() + ", wanted at most 1024");
    return readOr("auto", value); // 0 until the number of devices is known
  }

  bool readMesh() {
    Requested<MeshShape> &request = *std::get<Requested<MeshShape> *>(slot);
    request.reset();
    if (isWord(node, "auto"))
      return true;
    if (!node.isMap())
      return reportWanted(node);
    MeshShape &mesh = request.emplace();
    std::vector<std::string> axes = {"data", "tensor"};
    bool isValid = true;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const std::string &axis = node.keys[i].text;
      std::optional<int64_t> size = parseInteger(node.items[i], key);
      std::string problem;
      if (axis != "data" && axis != "tensor")
        problem = "found the axis '" + axis + "', wanted data or tensor" +
                  didYouMean(nearestWord(axis, axes));
      else if (std::any_of(
                   node.keys.begin(), node.keys.begin() + std::ptrdiff_t(i),
                   [&](const YamlNode &other) { return other.text == axis; }))
        problem = "found the axis '" + axis + "' twice";
      else if (!size)
        problem =
            "found " + node.items[i].describe() + ", wanted a positive integer";
      if (problem.empty()) {
        (axis == "data" ? mesh.data : mesh.tensor) = *size;
        continue;
      }
      diagnostics.error(node.keys[i].position,
                        std::string(key.path) + ": " + problem);
      isValid = false;
    }
    return isValid;
  }

  bool readPrecision() {
    PrecisionPolicy &policy = *std::get<PrecisionPolicy *>(slot);
    policy = PrecisionPolicy();
    if (!node.isMap()) {
      std::optional<FloatFormat> format;
      if (node.kind == YamlNode::Kind::Scalar)
        format = findWord<FloatFormat>(node.text);
      if (!format)
        return reportWanted(node);
      policy = PrecisionPolicy::preset(*format);
      return true;
    }
    // The preset comes first, wherever it is written.
    bool isValid = true;
    for (bool isPreset : {true, false})
      for (size_t i = 0; i < node.keys.size(); ++i)
        if ((node.keys[i].text == "preset") == isPreset)
          isValid &=
              isFirst(i) && readPart(node.keys[i], node.items[i], policy);
    if (!isValid)
      return false;
    std::vector<std::string> faults = findFaults(policy);
    for (const std::string &fault : faults)
      report(fault);
    return faults.empty();
  }

  /// Whether no earlier key of the map is the same.
  bool isFirst(size_t number) {
    const YamlNode &name = node.keys[number];
    for (size_t i = 0; i < number; ++i)
      if (node.keys[i].text == name.text) {
        diagnostics.error(name.position,
                          "duplicate key '" + std::string(key.path) + "." +
                              name.text + "', first given on line " +
                              std::to_string(node.keys[i].position.line));
        return false;
      }
    return true;
  }

  bool readPart(const YamlNode &name, const YamlNode &value,
                PrecisionPolicy &policy) {
    std::span<const PrecisionPart> parts = precisionParts();
    auto part = std::find_if(parts.begin(), parts.end(), [&](auto &candidate) {
      return candidate.name == name.text;
    });
    bool isPreset = name.text == "preset";
    if (!isPreset && part == parts.end()) {
      std::vector<std::string> names = {"preset"};
      for (const PrecisionPart &known : parts)
        names.emplace_back(known.name);
      return reportAt(name, "found the part '" + name.text + "', wanted " +
                                joinWords(names) +
                                didYouMean(nearestWord(name.text, names)));
    }
    bool isMaster = !isPreset && part->member == &PrecisionPolicy::master;
    if (isMaster && isWord(value, "none")) {
      policy.roundsStochastically = true;
      return true;
    }
    std::optional<FloatFormat> format;
    if (value.kind == YamlNode::Kind::Scalar)
      format = findWord<FloatFormat>(value.text);
    if (!format)
      return reportAt(value, "found " + value.describe() + " for " + name.text +
                                 ", wanted " +
                                 joinWords(splitChoices(key.choices)) +
                                 (isMaster ? ", or none" : ""));
    if (isPreset)
      policy = PrecisionPolicy::preset(*format);
    else
      policy.*part->member = *format;
    return true;
  }

  bool reportAt(const YamlNode &place, const std::string &message) {
    diagnostics.error(place.position, std::string(key.path) + ": " + message);
    return false;
  }

  const Key &key;
  const YamlNode &node;
  const std::string &folder;
  Slot slot;
  Diagnostics &diagnostics;
};

template <typename T, typename Print>
std::string printList(const std::vector<T> &values, Print print) {
  if (values.empty())
    return ""; // No key has an empty list as a value; it is absent.
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? ", " : "") + print(values[i]);
  return text + "]";
}

std::string printInteger(const Key &key, int64_t value) {
  if (value == 0 && key.type == KeyType::Every)
    return "epoch";
  if (value == 0 && key.type == KeyType::Bytes)
    return "auto";
  // Keys that may be absent or are computed have no legal zero.
  if (value == 0 && !key.hasDefault() && key.minimum > 0)
    return "";
  return std::to_string(value);
}

std::string printMesh(const Requested<MeshShape> &mesh) {
  if (!mesh)
    return "auto";
  return "{data: " + std::to_string(mesh->data) +
         ", tensor: " + std::to_string(mesh->tensor) + "}";
}

std::string printMicroBatch(const MicroBatchRequest &request) {
  switch (request.kind) {
  case MicroBatchRequest::Kind::None:
    return "none";
  case MicroBatchRequest::Kind::Number:
    return std::to_string(request.least);
  case MicroBatchRequest::Kind::Auto:
    return "auto";
  case MicroBatchRequest::Kind::Explore:
    return "explore";
  case MicroBatchRequest::Kind::Range:
    return "{min: " + std::to_string(request.least) +
           ", max: " + std::to_string(request.most) + "}";
  }
  return "";
}

} // namespace

bool readValue(const Key &key, const YamlNode &node, const std::string &folder,
               Config &config, Diagnostics &diagnostics) {
  if (node.kind == YamlNode::Kind::Invalid)
    return false;
  return ValueReader(key, node, folder, config, diagnostics).read();
}

std::string printValue(const Key &key, const Config &config) {
  struct Printer {
    const Key &key;
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(Presence *presence) const {
      return *presence == Presence::None ? "none" : "";
    }
    std::string operator()(int64_t *value) const {
      return printInteger(key, *value);
    }
    std::string operator()(double *value) const { return printNumber(*value); }
    std::string operator()(bool *value) const {
      return *value ? "true" : "false";
    }
    std::string operator()(std::string *value) const {
      bool isQuoted = key.type == KeyType::Path && !value->empty();
      return isQuoted ? quoteText(*value) : *value;
    }
    std::string operator()(std::vector<int64_t> *values) const {
      return printList(*values, [](int64_t v) { return std::to_string(v); });
    }
    std::string operator()(std::vector<double> *values) const {
      bool isAuto = values->empty() && key.type == KeyType::NumberList;
      return isAuto ? "auto" : printList(*values, printNumber);
    }
    std::string operator()(Requested<MeshShape> *mesh) const {
      return printMesh(*mesh);
    }
    std::string operator()(PrecisionPolicy *policy) const {
      return policy->print();
    }
    std::string operator()(MicroBatchRequest *request) const {
      return printMicroBatch(*request);
    }
    std::string operator()(const WordSlot &slot) const {
      return slot.load(slot.object);
    }
  };
  // The slot only reads here; slots are declared on mutable configs.
  return std::visit(Printer{key}, key.slot(const_cast<Config &>(config)));
}

} // namespace kiln
