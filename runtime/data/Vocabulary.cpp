// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Vocabulary.h"
#include "runtime/data/ByteSource.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace kiln {

Vocabulary::Vocabulary(const WordCounts &words, int32_t marks, uint64_t limit)
    : marks_(static_cast<uint64_t>(marks)) {
  using Entry = WordMap<uint64_t>::value_type;
  std::vector<const Entry *> entries;
  for (const Entry &entry : words.counts())
    entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const Entry *a, const Entry *b) {
    return a->second != b->second ? a->second > b->second : a->first < b->first;
  });
  for (const Entry *entry : entries)
    if (size() < limit)
      ids_.emplace(entry->first, static_cast<int32_t>(size()));
}

std::string Vocabulary::add(std::string_view line, uint64_t limit) {
  WordReader words(line);
  if (!words.next() || words.word() != line)
    return "found " + quoteBytes(line) +
           ", wanted one word as texts are split: in lower case, without "
           "white space, a punctuation character by itself";
  if (size() == limit)
    return "found more than " + std::to_string(limit) +
           " ids, wanted at most as many as model.vocabulary";
  auto [word, isNew] = ids_.emplace(line, static_cast<int32_t>(size()));
  if (!isNew)
    return "found the word " + quoteBytes(line) + " again, first on line " +
           std::to_string(word->second + 1);
  return "";
}

Expected<Vocabulary> Vocabulary::open(const std::string &path, int32_t marks,
                                      uint64_t limit) {
  Expected<ByteSource> source = ByteSource::open(path);
  if (!source.ok())
    return source.status();
  Vocabulary vocabulary(WordCounts(), marks, limit);
  vocabulary.path_ = path;
  LineReader lines(asText(source->bytes()));
  for (uint64_t id = 0; lines.next(); ++id) {
    std::string fault;
    if (id >= vocabulary.marks_)
      fault = vocabulary.add(lines.line(), limit);
    else if (lines.line() != markNames[id])
      fault = "found " + quoteBytes(lines.line()) + ", wanted the mark " +
              quoteBytes(markNames[id]);
    if (!fault.empty())
      return rejectData(path + ":" + std::to_string(lines.number()), fault);
  }
  if (vocabulary.ids_.empty())
    return rejectData(path, "holds no words");
  if (Status status = source->check(); !status.ok())
    return status;
  return vocabulary;
}

int32_t Vocabulary::find(std::string_view word) const {
  auto found = ids_.find(word);
  return found == ids_.end() ? unknown : found->second;
}

Status Vocabulary::check(const std::string &path, std::span<const int32_t> ids,
                         const Warn &warn) const {
  constexpr double mostUnknown = 0.5;
  auto count = std::count(ids.begin(), ids.end(), unknown);
  double share = static_cast<double>(count) /
                 std::max(static_cast<double>(ids.size()), 1.0);
  std::string own = path_.empty()
                        ? "the vocabulary of " + std::to_string(size()) + " ids"
                        : "the vocabulary " + path_;
  if (static_cast<size_t>(count) == ids.size())
    return rejectData(path, "none of its " + std::to_string(ids.size()) +
                                " words is in " + own +
                                ", wanted data in its words");
  char percent[32];
  std::snprintf(percent, sizeof(percent), "%.0f%%", 100 * share);
  if (warn && share > mostUnknown)
    warn("data file " + path + ": " + percent + " of its words are not in " +
         own + " and all read as [UNK]");
  return Status();
}

std::string Vocabulary::print() const {
  std::vector<std::string_view> words(markNames, markNames + marks_);
  words.resize(size());
  for (const auto &[word, id] : ids_)
    words[static_cast<size_t>(id)] = word;
  std::string text;
  for (std::string_view word : words)
    text.append(word) += '\n';
  return text;
}

} // namespace kiln
