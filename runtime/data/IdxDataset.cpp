// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/ByteSource.h"
#include "runtime/data/Dataset.h"

namespace kiln {

using artifact::ElementType;

namespace {

/// An IDX file of bytes: big-endian magic and sizes, then the elements.
struct IdxFile {
  ByteSource source;
  uint64_t samples = 0;
  uint64_t sampleBytes = 1;
  std::vector<uint64_t> shape; // of a sample
  std::span<const std::byte> elements;
};

uint32_t readBigEndian(std::span<const std::byte> bytes, size_t offset) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i)
    number = number << 8 | static_cast<uint32_t>(bytes[offset + i]);
  return number;
}

Expected<IdxFile> openFile(const std::string &path, const Warn &warn) {
  Expected<ByteSource> source = ByteSource::open(path, warn);
  if (!source.ok())
    return source.status();
  IdxFile file{std::move(*source), 0, 1, {}, {}};
  std::span<const std::byte> bytes = file.source.bytes();
  constexpr uint32_t byteElements = 0x08;
  uint32_t magic = bytes.size() < 4 ? 0 : readBigEndian(bytes, 0);
  uint32_t dimensions = magic & 0xff;
  if (magic >> 8 != byteElements || dimensions < 1 || dimensions > 4)
    return rejectData(path, "magic is " + std::to_string(magic) +
                                ", wanted 2049 to 2052 (bytes in 1 to 4 "
                                "dimensions)");
  size_t header = 4 + 4 * dimensions;
  if (bytes.size() < header)
    return rejectData(path, "ends within its header");
  file.samples = readBigEndian(bytes, 4);
  uint64_t wanted = file.samples;
  bool overflows = false;
  for (uint32_t i = 1; i < dimensions; ++i) {
    uint64_t size = readBigEndian(bytes, 4 + 4 * i);
    file.shape.push_back(size);
    file.sampleBytes *= size; // Only used if `wanted`, which is no less, fits.
    overflows |= __builtin_mul_overflow(wanted, size, &wanted);
  }
  if (overflows || wanted != bytes.size() - header)
    return rejectData(path, "has " + std::to_string(bytes.size() - header) +
                                " bytes after its header, its sizes want " +
                                (overflows ? "more than can be counted"
                                           : std::to_string(wanted)));
  if (wanted == 0)
    return rejectData(path, "holds no samples");
  file.elements = bytes.subspan(header);
  return file;
}

std::string printShape(std::span<const uint64_t> shape) {
  std::string text;
  for (uint64_t size : shape)
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

/// An image in the file: planes of one channel each.
struct Planes {
  uint64_t channels;
  uint64_t pixels; // of a plane
};

/// Writes pixel by pixel, `channels` values each; the one channel of a grey
/// image is repeated.
template <typename Element>
void writeScaled(const std::byte *image, Planes planes, uint64_t channels,
                 std::byte *target) {
  auto *elements = reinterpret_cast<Element *>(target);
  for (uint64_t pixel = 0; pixel < planes.pixels; ++pixel)
    for (uint64_t channel = 0; channel < channels; ++channel) {
      uint64_t plane = planes.channels == 1 ? 0 : channel;
      auto value = static_cast<uint8_t>(image[plane * planes.pixels + pixel]);
      *elements++ = static_cast<Element>(value) / static_cast<Element>(255);
    }
}

class IdxDataset : public Dataset {
public:
  IdxDataset(IdxFile images, IdxFile labels, uint64_t classes)
      : Dataset(images.source.path(), {{"image", 0}, {"label", 1}}),
        images_(std::move(images)), labels_(std::move(labels)),
        classes_(classes) {}

  Status checkLabels() const {
    std::span ids(reinterpret_cast<const uint8_t *>(labels_.elements.data()),
                  labels_.elements.size());
    if (std::optional<uint64_t> found = findOutside(ids, classes_))
      return rejectData(labels_.source.path(),
                        describe(*found, ids[*found]) +
                            (labels_.source.check().ok() ? "" : changedSince));
    return labels_.source.check();
  }

  uint64_t samples() const override { return images_.samples; }

  Status checkInput(const artifact::Input &input) const override {
    if (input.name()->string_view() != "image")
      return Dataset::checkInput(input);
    ElementType type = input.element_type();
    if (type != ElementType::f32 && type != ElementType::f64)
      return reject("input 'image' has element type " +
                    std::string(artifact::EnumNameElementType(type)) +
                    ", wanted f32 or f64");
    if (fits(input))
      return Status();
    std::vector<uint64_t> wanted(input.sample_shape()->begin(),
                                 input.sample_shape()->end());
    return reject(
        "its images are " + printShape(images_.shape) +
        (images_.shape.size() == 3 ? " (channels x height x width)" : "") +
        ", input 'image' wants " + printShape(wanted) +
        (wanted.size() == 3 ? " (height x width x channels)" : ""));
  }

  Status write(const artifact::Input &input, SampleId sample,
               std::byte *target) const override {
    if (input.name()->string_view() == "label")
      return writeLabel(sample.index, IntegerTarget(input, target));
    const std::byte *image =
        images_.elements.data() + sample.index * images_.sampleBytes;
    // A vector is the bytes in the file's order: planes of one pixel row.
    bool isImage = input.sample_shape()->size() == 3;
    Planes planes = isImage ? this->planes() : Planes{1, images_.sampleBytes};
    uint64_t channels = isImage ? input.sample_shape()->Get(2) : 1;
    if (input.element_type() == ElementType::f64)
      writeScaled<double>(image, planes, channels, target);
    else
      writeScaled<float>(image, planes, channels, target);
    return Status();
  }

  /// Of labels that have changed, one out of range says more than their time.
  Status checkFiles() const override {
    if (Status status = images_.source.check(); !status.ok())
      return status;
    return labels_.source.check().ok() ? Status() : checkLabels();
  }

private:
  Status writeLabel(uint64_t sample, IntegerTarget label) const {
    label.set(0, static_cast<int64_t>(labels_.elements[sample]));
    if (!label.findOutside(1, classes_))
      return Status();
    return rejectData(labels_.source.path(),
                      describe(sample, label.id(0)) + changedSince);
  }

  std::string describe(uint64_t sample, uint64_t label) const {
    return "label " + std::to_string(label) + " of sample " +
           std::to_string(sample) + " is not below the number of classes, " +
           std::to_string(classes_);
  }

  Planes planes() const {
    uint64_t channels = images_.shape.size() == 3 ? images_.shape[0] : 1;
    return {channels, images_.sampleBytes / channels};
  }

  /// Images have their channels last; anything else keeps the file's layout.
  bool fits(const artifact::Input &input) const {
    const flatbuffers::Vector<int64_t> &wanted = *input.sample_shape();
    if (wanted.size() != 3)
      return sampleElements(input) == images_.sampleBytes;
    if (images_.shape.size() < 2)
      return false;
    std::span<const uint64_t> size = std::span(images_.shape).last(2);
    auto isSize = [&](unsigned at, uint64_t found) {
      return static_cast<uint64_t>(wanted.Get(at)) == found;
    };
    return isSize(0, size[0]) && isSize(1, size[1]) &&
           (planes().channels == 1 || isSize(2, planes().channels));
  }

  IdxFile images_, labels_;
  uint64_t classes_; // 0: any label.
};

} // namespace

Expected<std::unique_ptr<Dataset>> openIdx(const DataSource &source) {
  if (source.labels.empty())
    return Status(Code::inputRejected,
                  "data of kind 'idx' has no path of labels");
  Expected<IdxFile> images = openFile(source.path, source.warn);
  if (!images.ok())
    return images.status();
  Expected<IdxFile> labels = openFile(source.labels, source.warn);
  if (!labels.ok())
    return labels.status();
  if (labels->sampleBytes != 1)
    return rejectData(labels->source.path(),
                      "labels have " + std::to_string(labels->sampleBytes) +
                          " bytes each, wanted 1");
  if (images->samples != labels->samples)
    return rejectData(labels->source.path(),
                      "has " + std::to_string(labels->samples) +
                          " labels for " + std::to_string(images->samples) +
                          " images in " + images->source.path());
  auto dataset = std::make_unique<IdxDataset>(
      std::move(*images), std::move(*labels), source.settings.classes());
  if (Status status = dataset->checkLabels(); !status.ok())
    return status;
  return std::unique_ptr<Dataset>(std::move(dataset));
}

} // namespace kiln
