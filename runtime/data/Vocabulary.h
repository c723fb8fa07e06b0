// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_VOCABULARY_H
#define KILN_RUNTIME_DATA_VOCABULARY_H

#include "runtime/Status.h"
#include "runtime/Warn.h"
#include "runtime/data/Text.h"

#include <span>

namespace kiln {

/// Ids of words. The first ids are marks; words follow by falling count, and
/// words of equal count by their bytes, so that equal texts give equal ids; or
/// in the order of a file.
class Vocabulary {
public:
  static constexpr int32_t padding = 0, unknown = 1;
  /// As files have them; no word of a text is spelt like one.
  static constexpr std::string_view markNames[] = {"[PAD]", "[UNK]", "[CLS]",
                                                   "[SEP]", "[MASK]"};

  /// The first `marks` marks are reserved, padding and unknown among them;
  /// there are at most `limit` ids in all.
  Vocabulary(const WordCounts &words, int32_t marks, uint64_t limit);

  /// Reads a file with a word on each line, the marks first. `inputRejected`
  /// with the line for one that no text yields, a second one, or one too many.
  static Expected<Vocabulary> open(const std::string &path, int32_t marks,
                                   uint64_t limit);

  int32_t find(std::string_view word) const;
  /// Ids, marks included.
  uint64_t size() const { return marks_ + ids_.size(); }

  /// Whether ids that were found for the words of a data file are of use:
  /// `inputRejected` if all are unknown, and a warning if most are.
  Status check(const std::string &path, std::span<const int32_t> ids,
               const Warn &warn) const;

  /// The text of a file that `open` reads.
  std::string print() const;

private:
  /// Why a line cannot be the next word; empty if it can.
  std::string add(std::string_view line, uint64_t limit);

  std::string path_; // Of its file, if it has one.
  uint64_t marks_;
  WordMap<int32_t> ids_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_VOCABULARY_H
