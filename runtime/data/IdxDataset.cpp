// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"

#include <algorithm>

namespace kiln {

using artifact::ElementType;

namespace {

/// An IDX file of bytes: big-endian magic and sizes, then the elements.
struct IdxFile {
  ByteSource source;
  uint64_t samples = 0;
  uint64_t sampleBytes = 1;
  std::span<const std::byte> elements;
};

Status reject(const std::string &path, const std::string &found) {
  return Status(Code::inputRejected, "IDX file " + path + ": " + found);
}

uint32_t readBigEndian(std::span<const std::byte> bytes, size_t offset) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i)
    number = number << 8 | static_cast<uint32_t>(bytes[offset + i]);
  return number;
}

Expected<IdxFile> openFile(const std::string &path) {
  Expected<ByteSource> source = ByteSource::open(path);
  if (!source.ok())
    return source.status();
  IdxFile file{std::move(*source), 0, 1, {}};
  std::span<const std::byte> bytes = file.source.bytes();
  constexpr uint32_t byteElements = 0x08;
  uint32_t magic = bytes.size() < 4 ? 0 : readBigEndian(bytes, 0);
  uint32_t dimensions = magic & 0xff;
  if (magic >> 8 != byteElements || dimensions < 1 || dimensions > 4)
    return reject(path, "magic is " + std::to_string(magic) +
                            ", wanted 2049 to 2052 (bytes in 1 to 4 "
                            "dimensions)");
  size_t header = 4 + 4 * dimensions;
  if (bytes.size() < header)
    return reject(path, "ends within its header");
  file.samples = readBigEndian(bytes, 4);
  uint64_t wanted = file.samples;
  bool overflows = false;
  for (uint32_t i = 1; i < dimensions; ++i) {
    uint64_t size = readBigEndian(bytes, 4 + 4 * i);
    file.sampleBytes *= size; // Only used if `wanted`, which is no less, fits.
    overflows |= __builtin_mul_overflow(wanted, size, &wanted);
  }
  if (overflows || wanted != bytes.size() - header)
    return reject(path, "has " + std::to_string(bytes.size() - header) +
                            " bytes after its header, its sizes want " +
                            (overflows ? "more than can be counted"
                                       : std::to_string(wanted)));
  if (wanted == 0)
    return reject(path, "holds no samples");
  file.elements = bytes.subspan(header);
  return file;
}

template <typename Element>
void writeScaled(std::span<const std::byte> source, std::byte *target) {
  auto *elements = reinterpret_cast<Element *>(target);
  for (size_t i = 0; i < source.size(); ++i)
    elements[i] = static_cast<Element>(static_cast<uint8_t>(source[i])) /
                  static_cast<Element>(255);
}

class IdxDataset : public Dataset {
public:
  IdxDataset(IdxFile images, IdxFile labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}

  uint64_t samples() const override { return images_.samples; }

  Status checkInput(const artifact::Input &input) const override {
    ElementType type = input.element_type();
    bool isImage = input.name()->string_view() == "image";
    if (!isImage && input.name()->string_view() != "label")
      return rejectInput(input, "image, label");
    uint64_t wanted = isImage ? images_.sampleBytes : 1;
    if (sampleElements(input) != wanted)
      return reject(images_.source.path(),
                    "input '" + input.name()->str() + "' wants " +
                        std::to_string(sampleElements(input)) +
                        " elements per sample, the file has " +
                        std::to_string(wanted));
    bool isFloat = type == ElementType::f32 || type == ElementType::f64;
    bool isInteger = type == ElementType::i32 || type == ElementType::i64;
    if (isImage ? isFloat : isInteger)
      return Status();
    return reject(images_.source.path(),
                  "input '" + input.name()->str() + "' has element type " +
                      artifact::EnumNameElementType(type) + ", wanted " +
                      (isImage ? "f32 or f64" : "i32 or i64"));
  }

  void write(const artifact::Input &input, uint64_t sample,
             std::byte *target) const override {
    auto label = static_cast<int32_t>(labels_.elements[sample]);
    std::span<const std::byte> image = images_.elements.subspan(
        sample * images_.sampleBytes, images_.sampleBytes);
    switch (input.element_type()) {
    case ElementType::f32:
      return writeScaled<float>(image, target);
    case ElementType::f64:
      return writeScaled<double>(image, target);
    case ElementType::i64:
      *reinterpret_cast<int64_t *>(target) = label;
      return;
    default:
      *reinterpret_cast<int32_t *>(target) = label;
    }
  }

private:
  IdxFile images_, labels_;
};

Status checkLabels(const IdxFile &labels, uint64_t classes) {
  auto isTooLarge = [classes](std::byte label) {
    return static_cast<uint64_t>(label) >= classes;
  };
  auto found =
      std::find_if(labels.elements.begin(), labels.elements.end(), isTooLarge);
  if (classes == 0 || found == labels.elements.end())
    return Status();
  return reject(
      labels.source.path(),
      "label " + std::to_string(static_cast<int>(*found)) + " of sample " +
          std::to_string(found - labels.elements.begin()) +
          " is not below the number of classes, " + std::to_string(classes));
}

} // namespace

Expected<std::unique_ptr<Dataset>> openIdx(const artifact::Data &data) {
  if (!data.labels_path() || data.labels_path()->size() == 0)
    return Status(Code::inputRejected,
                  "data of kind 'idx' has no path of labels");
  Expected<IdxFile> images = openFile(data.path()->str());
  if (!images.ok())
    return images.status();
  Expected<IdxFile> labels = openFile(data.labels_path()->str());
  if (!labels.ok())
    return labels.status();
  if (labels->sampleBytes != 1)
    return reject(labels->source.path(),
                  "labels have " + std::to_string(labels->sampleBytes) +
                      " bytes each, wanted 1");
  if (images->samples != labels->samples)
    return reject(labels->source.path(),
                  "has " + std::to_string(labels->samples) + " labels for " +
                      std::to_string(images->samples) + " images in " +
                      images->source.path());
  if (Status status = checkLabels(*labels, data.vocabulary()); !status.ok())
    return status;
  return std::unique_ptr<Dataset>(
      std::make_unique<IdxDataset>(std::move(*images), std::move(*labels)));
}

} // namespace kiln
