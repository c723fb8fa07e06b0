// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ConfigTexts.h"

#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"
#include "compiler/config/Spelling.h"
#include "compiler/config/YamlTree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// A valid config in which the section of a key has the kind that has the key.
std::string textWith(const Key &key) {
  std::string kind = key.kinds.empty() ? "" : splitChoices(key.kinds).front();
  if (key.section() != "model")
    return smallGptText;
  return kind == "bert"         ? smallBertText
         : kind == "resnet"     ? smallResnetText
         : kind == "classifier" ? smallClassifierText
         : kind == "mlp"        ? smallMlpText
         : kind == "file"       ? smallFileText
                                : smallGptText;
}

std::vector<std::string> overridesFor(const Key &key) {
  if (key.kinds.empty() || key.section() == "model")
    return {};
  std::string section(key.section());
  std::string kind = splitChoices(key.kinds).front();
  std::vector<std::string> overrides = {section + ".kind=" + kind};
  if (section == "data")
    overrides.push_back("data.path=x");
  if (kind == "idx")
    overrides.push_back("data.labels=x");
  return overrides;
}

TEST(Schema, EveryDefaultIsALegalValue) {
  for (const Key &key : schema()) {
    if (key.type == KeyType::Section || !key.hasDefault())
      continue;
    YamlNode node;
    Config config;
    Diagnostics diagnostics;
    ASSERT_TRUE(parseYaml(std::string(key.fallback), 0, node, diagnostics));
    EXPECT_TRUE(readValue(key, node, "", config, diagnostics))
        << key.path << ": " << diagnostics.text();
  }
}

TEST(Schema, EveryKeyMisspeltByOneLetterIsSuggested) {
  for (const Key &key : schema()) {
    std::string path(key.path), name(key.name());
    std::string prefix = path.substr(0, path.size() - name.size());
    std::vector<std::string> misspellings;
    for (size_t i = 0; i < name.size(); ++i) {
      misspellings.push_back(name.substr(0, i) + "j" + name.substr(i + 1));
      misspellings.push_back(name.substr(0, i) + name.substr(i + 1));
      misspellings.push_back(name.substr(0, i) + "j" + name.substr(i));
    }
    for (const std::string &misspelling : misspellings) {
      std::vector<std::string> overrides = overridesFor(key);
      overrides.push_back(prefix + misspelling + "=1");
      EXPECT_THAT(errorsOf(textWith(key), overrides),
                  Contains(HasSubstr("unknown key '" + prefix + misspelling +
                                     "' (did you mean '" + path + "'?)")));
    }
  }
}

TEST(Schema, EveryIllTypedValueIsReported) {
  for (const Key &key : schema()) {
    if (key.type == KeyType::Path)
      continue; // Any text is a path.
    std::vector<std::string> overrides = overridesFor(key);
    overrides.push_back(std::string(key.path) + "=abc");
    EXPECT_THAT(errorsOf(textWith(key), overrides),
                Contains(HasSubstr(std::string(key.path) +
                                   ": found 'abc', wanted " + key.wanted())));
  }
}

TEST(Schema, EveryIntegerHasItsRangeChecked) {
  for (const Key &key : schema()) {
    if (key.type != KeyType::Integer)
      continue;
    for (double value : {key.minimum - 1, key.maximum + 2}) {
      std::vector<std::string> overrides = overridesFor(key);
      std::string text = std::to_string(value); // May be no int64_t.
      text.resize(text.find('.'));
      overrides.push_back(std::string(key.path) + "=" + text);
      EXPECT_THAT(errorsOf(textWith(key), overrides),
                  Contains(HasSubstr("found '" + text + "', wanted")));
    }
  }
}

TEST(Schema, EveryBoundIsLegalAndNamed) {
  for (const Key &key : schema()) {
    if (key.type != KeyType::Integer)
      continue;
    std::string wanted = key.wanted();
    std::string maximum = wanted.substr(wanted.rfind(' ') + 1);
    YamlNode node;
    Config config;
    Diagnostics diagnostics;
    ASSERT_TRUE(parseYaml(maximum, 0, node, diagnostics));
    EXPECT_TRUE(readValue(key, node, "", config, diagnostics))
        << key.path << ": " << diagnostics.text();
  }
  EXPECT_THAT(findKey("training.seed", "")->wanted(),
              HasSubstr("9223372036854775807"));
}

// A word is stored as itself, whatever the order of enumerators.
TEST(Schema, EveryChoiceIsPrintedAsItWasRead) {
  for (const Key &key : schema()) {
    if (key.type != KeyType::Choice && key.type != KeyType::AutoChoice)
      continue;
    std::vector<std::string> words = splitChoices(key.choices);
    EXPECT_FALSE(words.empty()) << key.path;
    if (key.type == KeyType::AutoChoice)
      words.push_back("auto");
    for (const std::string &word : words) {
      YamlNode node;
      Config config;
      Diagnostics diagnostics;
      ASSERT_TRUE(parseYaml(word, 0, node, diagnostics));
      EXPECT_TRUE(readValue(key, node, "", config, diagnostics))
          << key.path << ": " << diagnostics.text();
      EXPECT_EQ(printValue(key, config), word) << key.path;
    }
  }
}

TEST(Schema, EnumerationsHaveTheirWords) {
  EXPECT_EQ(findKey("data.kind", "")->choices,
            "text|tokens|documents|tsv|idx|none");
  EXPECT_EQ(findKey("devices.recompute", "")->choices, "none|attention|full");
  EXPECT_EQ(findWord<Recompute>("full"), Recompute::Full);
  EXPECT_EQ(findWord<Recompute>("fuller"), std::nullopt);
  EXPECT_EQ(wordOf(OptimizerKind::AdamW), "adamw");
}

TEST(Schema, IsDocumented) {
  std::string text = describeSchema();
  for (const Key &key : schema()) {
    EXPECT_FALSE(key.summary.empty()) << key.path;
    EXPECT_THAT(text, HasSubstr(std::string(key.path)));
  }
}

TEST(Spelling, CountsEdits) {
  EXPECT_EQ(editDistance("", ""), 0u);
  EXPECT_EQ(editDistance("abc", ""), 3u);
  EXPECT_EQ(editDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(editDistance("hedas", "heads"), 1u);
}

TEST(Spelling, FarWordsAreNotSuggested) {
  EXPECT_EQ(nearestWord("xyz", {"log", "data"}), "");
  EXPECT_EQ(nearestWord("a", {"b"}), "");
  EXPECT_EQ(nearestWord(std::string(1000, 'a'), {"a"}), "");
}

} // namespace
} // namespace kiln::test
