// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Dataset.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/data/ByteSource.h"

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

Expected<std::unique_ptr<Dataset>> Dataset::open(const artifact::Data &data,
                                                 uint64_t seed) {
  return openSource(
      {data, textOf(data.path()), textOf(data.labels_path()), seed});
}

Expected<std::unique_ptr<Dataset>>
Dataset::openHeldOut(const artifact::Data &data,
                     const artifact::Evaluation &heldOut, uint64_t seed) {
  return openSource(
      {data, textOf(heldOut.path()), textOf(heldOut.labels_path()), seed});
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
