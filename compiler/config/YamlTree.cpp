// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/YamlTree.h"

#include <sstream>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace kiln {

YamlNode *YamlNode::find(std::string_view key) {
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].text == key)
      return &items[i];
  return nullptr;
}

const YamlNode *YamlNode::find(std::string_view key) const {
  return const_cast<YamlNode *>(this)->find(key);
}

std::string YamlNode::describe() const {
  switch (kind) {
  case Kind::Null:
  case Kind::Invalid:
    return "nothing";
  case Kind::Sequence:
    return "a list";
  case Kind::Map:
    return "a map";
  case Kind::Scalar:
    break;
  }
  std::string shown = text.size() > 60 ? text.substr(0, 57) + "..." : text;
  return quoted ? "the quoted text '" + shown + "'" : "'" + shown + "'";
}

namespace {

class TreeBuilder : public YAML::EventHandler {
public:
  TreeBuilder(int source, YamlNode &root, Diagnostics &diagnostics)
      : source(source), root(root), diagnostics(diagnostics) {}

  void OnDocumentStart(const YAML::Mark &) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    attach(begin(mark, YamlNode::Kind::Null, "", anchor));
  }

  void OnAlias(const YAML::Mark &mark, YAML::anchor_t) override {
    diagnostics.error(at(mark), "found an alias; configs may not use them");
    attach(begin(mark, YamlNode::Kind::Invalid, "", 0));
  }

  void OnScalar(const YAML::Mark &mark, const std::string &tag,
                YAML::anchor_t anchor, const std::string &value) override {
    YamlNode node = begin(mark, YamlNode::Kind::Scalar, tag, anchor);
    node.quoted = tag == "!";
    node.text = value;
    // yaml-cpp announces an empty value as null but '~' and 'null' as text.
    if (!node.quoted && (value == "~" || value == "null"))
      node.kind = YamlNode::Kind::Null;
    attach(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(begin(mark, YamlNode::Kind::Sequence, tag, anchor));
  }

  void OnMapStart(const YAML::Mark &mark, const std::string &tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(begin(mark, YamlNode::Kind::Map, tag, anchor));
  }

  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

private:
  /// A collection being read. A map whose key has come waits for its value.
  struct Frame {
    YamlNode node;
    bool awaitsValue = false;
  };

  Position at(const YAML::Mark &mark) const {
    return {source, mark.line + 1, mark.column + 1};
  }

  YamlNode begin(const YAML::Mark &mark, YamlNode::Kind kind,
                 const std::string &tag, YAML::anchor_t anchor) {
    if (anchor)
      diagnostics.error(at(mark), "found an anchor; configs may not use them");
    if (!tag.empty() && tag != "?" && tag != "!")
      diagnostics.error(at(mark), "found the tag '" + tag +
                                      "'; configs may not use them");
    YamlNode node;
    node.kind = kind;
    node.position = at(mark);
    return node;
  }

  void open(YamlNode node) {
    if (frames.size() >= maximumConfigDepth)
      throw YAML::ParserException({}, "found more than " +
                                          std::to_string(maximumConfigDepth) +
                                          " levels of nesting");
    frames.push_back({std::move(node)});
  }

  void close() {
    YamlNode node = std::move(frames.back().node);
    frames.pop_back();
    attach(std::move(node));
  }

  void attach(YamlNode node) {
    if (frames.empty()) {
      root = std::move(node);
      return;
    }
    Frame &parent = frames.back();
    if (!parent.node.isMap() || parent.awaitsValue) {
      parent.node.items.push_back(std::move(node));
      parent.awaitsValue = false;
      return;
    }
    if (node.kind != YamlNode::Kind::Scalar) {
      diagnostics.error(node.position, "found " + node.describe() +
                                           " as a key, wanted a word");
      node = begin({}, YamlNode::Kind::Invalid, "", 0);
    }
    parent.node.keys.push_back(std::move(node));
    parent.awaitsValue = true;
  }

  int source;
  YamlNode &root;
  Diagnostics &diagnostics;
  std::vector<Frame> frames;
};

/// The parser's words for a tab or a file of another kind would mislead.
void reportSyntax(const std::string &text, int source,
                  const YAML::Exception &exception, Diagnostics &diagnostics) {
  Position position{source, 1, 1};
  if (!exception.mark.is_null())
    position = {source, exception.mark.line + 1, exception.mark.column + 1};
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; number <= position.line && std::getline(lines, line);
       ++number) {
    if (line.find('\0') != line.npos)
      return diagnostics.error({source, number, 1},
                               "found a binary file, wanted a config");
    size_t indent = line.find_first_not_of(' ');
    if (indent != line.npos && line[indent] == '\t')
      return diagnostics.error({source, number, static_cast<int>(indent) + 1},
                               "found a tab, wanted spaces before a key");
  }
  diagnostics.error(position, "is not YAML: " + exception.msg);
}

} // namespace

bool parseYaml(const std::string &text, int source, YamlNode &root,
               Diagnostics &diagnostics) {
  root = YamlNode();
  root.position = {source, 1, 1};
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder(source, root, diagnostics);
    if (!parser.HandleNextDocument(builder))
      return true; // Empty: every required key will be missed.
    YamlNode second;
    Diagnostics unheard;
    TreeBuilder other(source, second, unheard);
    if (parser.HandleNextDocument(other)) {
      diagnostics.error(second.position,
                        "found a second document, wanted only one");
      return false;
    }
    return true;
  } catch (const YAML::Exception &exception) {
    reportSyntax(text, source, exception, diagnostics);
    return false;
  }
}

} // namespace kiln
