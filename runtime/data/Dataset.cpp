// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Dataset.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/data/ByteSource.h"

#include <cmath>
#include <cstring>

namespace kiln {

using artifact::ElementType;

static Expected<std::unique_ptr<Dataset>> openSource(const DataSource &source) {
  std::string kind = source.settings.kind()->str();
  if (kind == "none")
    return std::unique_ptr<Dataset>();
  if (source.path.empty())
    return Status(Code::inputRejected,
                  "data of kind '" + kind + "' has no path");
  if (kind == "idx")
    return openIdx(source);
  if (kind == "text" || kind == "tokens")
    return openTokens(source);
  if (kind == "tsv")
    return openTsv(source);
  if (kind == "documents")
    return openDocuments(source);
  return Status(Code::inputRejected,
                "data kind '" + kind +
                    "' is not one of text, tokens, documents, tsv, idx, none");
}

static std::string textOf(const flatbuffers::String *string) {
  return string ? string->str() : "";
}

namespace {

/// Consecutive samples of another dataset.
class Part : public Dataset {
public:
  Part(std::unique_ptr<Dataset> whole, uint64_t first, uint64_t count)
      : Dataset("", {}), whole_(std::move(whole)), first_(first),
        count_(count) {}

  uint64_t samples() const override { return count_; }
  std::string_view vocabulary() const override { return whole_->vocabulary(); }

  Status checkInput(const artifact::Input &input) const override {
    return whole_->checkInput(input);
  }

  Status write(const artifact::Input &input, SampleId sample,
               std::byte *target) const override {
    return whole_->write(input, {sample.epoch, first_ + sample.index}, target);
  }

  Status checkFiles() const override { return whole_->checkFiles(); }

private:
  std::unique_ptr<Dataset> whole_;
  uint64_t first_, count_;
};

} // namespace

// The data without its last samples, or the last samples.
static Expected<std::unique_ptr<Dataset>>
openPart(const artifact::Data &data, double fraction, bool isHeldOut,
         uint64_t seed, const Warn &warn) {
  Expected<std::unique_ptr<Dataset>> whole = openSource(
      {data, textOf(data.path()), textOf(data.labels_path()), seed, warn});
  if (!whole.ok() || !*whole)
    return whole;
  uint64_t samples = (*whole)->samples();
  double wanted = std::ceil(fraction * static_cast<double>(samples));
  if (!(wanted >= 1 && wanted < static_cast<double>(samples)))
    return rejectData(textOf(data.path()),
                      "has " + std::to_string(samples) +
                          " samples; to hold out " + std::to_string(fraction) +
                          " of them leaves none to train on");
  auto held = static_cast<uint64_t>(wanted);
  uint64_t rest = samples - held;
  return std::unique_ptr<Dataset>(
      isHeldOut ? std::make_unique<Part>(std::move(*whole), rest, held)
                : std::make_unique<Part>(std::move(*whole), 0, rest));
}

static bool isEnd(const artifact::Evaluation &heldOut) {
  return !heldOut.path() || heldOut.path()->size() == 0;
}

Expected<std::unique_ptr<Dataset>>
Dataset::open(const artifact::Data &data, const artifact::Evaluation *heldOut,
              uint64_t seed, const Warn &warn) {
  if (heldOut && isEnd(*heldOut))
    return openPart(data, heldOut->fraction(), false, seed, warn);
  return openSource(
      {data, textOf(data.path()), textOf(data.labels_path()), seed, warn});
}

Expected<std::unique_ptr<Dataset>>
Dataset::openHeldOut(const artifact::Data &data,
                     const artifact::Evaluation &heldOut, uint64_t seed,
                     const Warn &warn) {
  if (isEnd(heldOut))
    return openPart(data, heldOut.fraction(), true, seed, warn);
  return openSource({data, textOf(heldOut.path()),
                     textOf(heldOut.labels_path()), seed, warn});
}

Status Dataset::checkInput(const artifact::Input &input) const {
  std::string name = input.name()->str(), known;
  for (const Field &field : fields_) {
    known += (known.empty() ? "" : ", ") + field.name;
    if (field.name != name)
      continue;
    if (sampleElements(input) != field.elements)
      return reject("input '" + name + "' wants " +
                    std::to_string(sampleElements(input)) +
                    " elements per sample, the data has " +
                    std::to_string(field.elements));
    ElementType type = input.element_type();
    if (type == ElementType::i32 || type == ElementType::i64)
      return Status();
    return reject("input '" + name + "' has element type " +
                  artifact::EnumNameElementType(type) + ", wanted i32 or i64");
  }
  return reject("input '" + name +
                "' cannot be fed from this data, which has " + known);
}

void Dataset::writePadding(const artifact::Input &input, std::byte *target) {
  std::string_view name = input.name()->string_view();
  bool isLabel = name == "label" || name == "labels" || name == "next";
  // All bits set are -1, in any integer.
  std::memset(target, isLabel ? 0xff : 0,
              sampleElements(input) * elementBytes(input.element_type()));
}

Status Dataset::reject(const std::string &message) const {
  return rejectData(path_, message);
}

uint64_t sampleElements(const artifact::Input &input) {
  uint64_t elements = 1; // The artifact's checks exclude overflow.
  for (int64_t size : *input.sample_shape())
    elements *= static_cast<uint64_t>(size);
  return elements;
}

} // namespace kiln
