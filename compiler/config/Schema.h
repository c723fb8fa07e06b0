// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_SCHEMA_H
#define KILN_COMPILER_CONFIG_SCHEMA_H

#include "compiler/config/Config.h"

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kiln {

enum class KeyType {
  Section,     // a map of further keys
  Integer,     //
  IntegerList, // one integer or a list of them
  Number,      //
  Pair,        // a list of two numbers
  NumberList,  // one positive number or more, or auto
  Boolean,     //
  Choice,      // one of some words
  AutoChoice,  // one of some words, or auto
  Probability, // of an event that is not certain
  Path,        // of a file
  MicroBatch,  // an integer, none, or a request to the search
  Every,       // a number of steps, or epoch
  Threads,     // an integer or auto
  Bytes,       // 2GiB, or auto
  Mesh,        // auto, or the sizes of the axes
  Precision,   // the type of all elements, or a map of types
};

/// A member of Config that is written as one of some words.
struct WordSlot {
  void *object;
  /// The word is one of the key's choices, or auto where that is legal.
  void (*store)(void *, std::string_view word);
  std::string (*load)(const void *);
};

/// The member of a Config that a key sets; monostate for a section that is
/// always there.
using Slot =
    std::variant<std::monostate, int64_t *, double *, bool *, std::string *,
                 std::vector<int64_t> *, std::vector<double> *,
                 Requested<MeshShape> *, MicroBatchRequest *, PrecisionPolicy *,
                 Presence *, WordSlot>;

/// One key of the config. Checks, defaults, messages, documentation and
/// canonical text of a key are all derived from its row.
struct Key {
  std::string_view path;
  /// The kinds of its section that have this key, as "a|b"; empty for all.
  std::string_view kinds;
  KeyType type;
  /// Default as it would be written; "required"; "absent" for a key or section
  /// that may be missing; or "= ..." for one that is computed from others.
  std::string_view fallback;
  double minimum;
  double maximum;
  /// Words of a choice, as "a|b".
  std::string_view choices;
  /// Words that this version does not support yet; they may be among the
  /// choices already.
  std::string_view unavailable;
  /// For a section that may be missing: its presence.
  Slot (*slot)(Config &);
  std::string_view summary;
  /// Whether no program depends on it: a run can have another value without
  /// compiling again.
  bool isSetting = false;

  bool isRequired() const { return fallback == "required"; }
  bool hasDefault() const {
    return !isRequired() && fallback != "absent" && !fallback.starts_with("=");
  }
  /// Whether it asks for a decision of the plan, which the compiler may make.
  bool isRequest() const {
    return type == KeyType::AutoChoice || type == KeyType::Mesh ||
           type == KeyType::MicroBatch || type == KeyType::NumberList;
  }
  /// Path of the section that holds it; empty for the top.
  std::string_view section() const;
  /// Last part of the path.
  std::string_view name() const;
  /// Description of a legal value, for errors and documentation.
  std::string wanted() const;
};

/// All keys; a section comes before its keys, `kind` before its siblings.
std::span<const Key> schema();

/// The key with that path in a section of that kind, or null.
const Key *findKey(std::string_view path, std::string_view kind);

/// Whether some kind of section has a key with that path.
bool isKnownPath(std::string_view path);

/// The choice that a section's `kind` has in a config; empty for a section
/// without one.
std::string kindOfSection(std::string_view section, const Config &config);

/// Splits "a|b".
std::vector<std::string> splitChoices(std::string_view choices);
bool hasChoice(std::string_view choices, std::string_view word);

/// "a, b or c".
std::string joinWords(const std::vector<std::string> &words);

/// Always `Given` for a section that may not be missing.
Presence presenceOf(std::string_view section, const Config &config);
bool hasSection(std::string_view section, const Config &config);

/// The documentation of all keys, as text.
std::string describeSchema();

} // namespace kiln

#endif
