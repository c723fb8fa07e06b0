// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_DATASET_H
#define KILN_RUNTIME_DATA_DATASET_H

#include "runtime/Status.h"
#include "runtime/Warn.h"
#include "runtime/artifact/Artifact_generated.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// A sample in one pass over the data: random draws, such as masks, are drawn
/// anew in each epoch.
struct SampleId {
  uint64_t epoch;
  uint64_t index;
};

/// Samples that can be read in any order, by any thread. All faults of the
/// files are found when they are opened, and changes of them after samples were
/// read.
class Dataset {
public:
  virtual ~Dataset() = default;

  /// Opens the artifact's data without the samples held out (`heldOut` may be
  /// null); null for the kind "none". The seed is that of random draws. `warn`
  /// tells of words that are unknown and, while samples are read, of files that
  /// were written to.
  static Expected<std::unique_ptr<Dataset>>
  open(const artifact::Data &data, const artifact::Evaluation *heldOut,
       uint64_t seed, const Warn &warn = {});

  /// Opens the data held out. State learnt before training, such as the
  /// vocabulary, still comes from the training data.
  static Expected<std::unique_ptr<Dataset>>
  openHeldOut(const artifact::Data &data, const artifact::Evaluation &heldOut,
              uint64_t seed, const Warn &warn = {});

  virtual uint64_t samples() const = 0;

  /// The text of a file of the words whose ids are in samples, in the order of
  /// ids; empty for data without words.
  virtual std::string_view vocabulary() const { return {}; }

  /// Whether samples fit the input by name, shape and element type.
  virtual Status checkInput(const artifact::Input &input) const;

  /// Writes one sample as the input wants it. Allocates nothing unless it
  /// fails: `inputRejected` if an id is out of range. The input must have
  /// passed `checkInput`.
  virtual Status write(const artifact::Input &input, SampleId sample,
                       std::byte *target) const = 0;

  /// Whether the samples written so far are those of the files as they were
  /// opened: `inputRejected` if a file has changed since. Allocates nothing
  /// unless one was written to. For one thread.
  virtual Status checkFiles() const { return Status(); }

  /// Writes padding for samples past the end of data held out: zeros, and
  /// labels that no loss and no accuracy counts.
  static void writePadding(const artifact::Input &input, std::byte *target);

protected:
  /// An input of integers that the dataset can feed.
  struct Field {
    std::string name;
    uint64_t elements; // of a sample
  };

  Dataset(std::string path, std::vector<Field> fields)
      : path_(std::move(path)), fields_(std::move(fields)) {}

  const std::string &path() const { return path_; }

  /// "data file PATH: MESSAGE".
  Status reject(const std::string &message) const;

private:
  std::string path_;
  std::vector<Field> fields_;
};

/// Settings and files from which a dataset is opened. The files are the
/// settings' own, or those of the data held out.
struct DataSource {
  const artifact::Data &settings;
  std::string path;
  std::string labels; // idx
  uint64_t seed;
  Warn warn; // May be empty.
};

/// Images (u8, scaled to [0, 1]) as "image" and classes as "label" from two IDX
/// files.
Expected<std::unique_ptr<Dataset>> openIdx(const DataSource &source);

/// "tokens" and "labels" (the tokens shifted by one) from a text, a byte being
/// a token, or from a flat file of token ids.
Expected<std::unique_ptr<Dataset>> openTokens(const DataSource &source);

/// "tokens", their "length" and "label" from lines of a label, a tab and a
/// sentence.
Expected<std::unique_ptr<Dataset>> openTsv(const DataSource &source);

/// Pairs of sentences with masked words: "tokens", "segments", "length",
/// "positions" and "labels" of the masked words, and whether the second
/// sentence is "next" (0) or not (1).
Expected<std::unique_ptr<Dataset>> openDocuments(const DataSource &source);

/// The input that holds each sample's index in the batch, whatever the data.
constexpr std::string_view positionInput = "sample";

/// Elements of one sample of an input.
uint64_t sampleElements(const artifact::Input &input);

/// The first id that is not below the limit, where 0 is no limit; nothing if
/// there is none. The type is unsigned.
template <typename Id>
std::optional<uint64_t> findOutside(std::span<const Id> ids, uint64_t limit) {
  // The maximum first: a loop without branches, ten times as fast as the
  // search.
  Id greatest = 0;
  for (Id id : ids)
    greatest = std::max(greatest, id);
  if (limit == 0 || greatest < limit)
    return std::nullopt;
  auto found =
      std::find_if(ids.begin(), ids.end(), [=](Id id) { return id >= limit; });
  if (found == ids.end())
    return std::nullopt; // A mapped file has changed meanwhile.
  return static_cast<uint64_t>(found - ids.begin());
}

/// A sample's slot in an input of integers, of any width.
class IntegerTarget {
public:
  IntegerTarget(const artifact::Input &input, std::byte *target)
      : isWide_(input.element_type() == artifact::ElementType::i64),
        target_(target) {}

  void set(uint64_t at, int64_t number) { fill(at, at + 1, number); }

  void fill(uint64_t begin, uint64_t end, int64_t number) {
    if (isWide_)
      std::fill(wide() + begin, wide() + end, number);
    else
      std::fill(narrow() + begin, narrow() + end, static_cast<int32_t>(number));
  }

  template <typename Number>
  void copy(uint64_t begin, std::span<const Number> numbers) {
    if (isWide_)
      std::copy(numbers.begin(), numbers.end(), wide() + begin);
    else
      std::copy(numbers.begin(), numbers.end(), narrow() + begin);
  }

  /// The same of the first `count` integers, which are ids. To be asked of the
  /// slot, and not of a file, whose bytes may change after they were checked.
  std::optional<uint64_t> findOutside(uint64_t count, uint64_t limit) const {
    return isWide_ ? kiln::findOutside(unsignedSpan<uint64_t>(count), limit)
                   : kiln::findOutside(unsignedSpan<uint32_t>(count), limit);
  }
  uint64_t id(uint64_t at) const {
    return isWide_ ? unsignedSpan<uint64_t>(at + 1).back()
                   : unsignedSpan<uint32_t>(at + 1).back();
  }

private:
  template <typename Id>
  std::span<const Id> unsignedSpan(uint64_t count) const {
    return {reinterpret_cast<const Id *>(target_), count};
  }
  int64_t *wide() const { return reinterpret_cast<int64_t *>(target_); }
  int32_t *narrow() const { return reinterpret_cast<int32_t *>(target_); }

  bool isWide_;
  std::byte *target_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_DATASET_H
