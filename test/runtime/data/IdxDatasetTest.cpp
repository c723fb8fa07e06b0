// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/data/Datasets.h"

#include <zlib.h>

#include <filesystem>

namespace kiln::test {

static std::string bigEndian(uint32_t number) {
  return {static_cast<char>(number >> 24), static_cast<char>(number >> 16),
          static_cast<char>(number >> 8), static_cast<char>(number)};
}

static std::string idxImages(uint32_t count) {
  std::string bytes =
      bigEndian(0x803) + bigEndian(count) + bigEndian(2) + bigEndian(2);
  for (uint32_t i = 0; i < 4 * count; ++i)
    bytes += static_cast<char>(i * 51);
  return bytes;
}

static std::string idxLabels(uint32_t count) {
  std::string bytes = bigEndian(0x801) + bigEndian(count);
  for (uint32_t i = 0; i < count; ++i)
    bytes += static_cast<char>(i);
  return bytes;
}

static DataT idxData(const std::string &images, const std::string &labels) {
  DataT data;
  data.kind = "idx";
  data.path = images;
  data.labels_path = labels;
  data.classes = 10;
  return data;
}

TEST(IdxDataset, ScalesImages) {
  TemporaryFile images(idxImages(3)), labels(idxLabels(3));
  auto dataset = open(idxData(images.path(), labels.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 3u);
  Packed<Input, InputT> image(input("image", ElementType::f32, {4}));
  Packed<Input, InputT> precise(input("image", ElementType::f64, {2, 2}));
  Packed<Input, InputT> label(input("label", ElementType::i32, {}));
  ASSERT_TRUE((*dataset)->checkInput(*image).ok());
  ASSERT_TRUE((*dataset)->checkInput(*precise).ok());
  ASSERT_TRUE((*dataset)->checkInput(*label).ok());
  float pixels[4];
  double pixels64[4];
  int32_t number;
  auto write = [&](const PackedInput &input, uint64_t sample, void *target) {
    Status status = (*dataset)->write(*input, {0, sample},
                                      static_cast<std::byte *>(target));
    EXPECT_TRUE(status.ok()) << status.message();
  };
  write(image, 0, pixels);
  write(precise, 1, pixels64);
  write(label, 2, &number);
  EXPECT_EQ(pixels[1], 51.0f / 255.0f);
  EXPECT_EQ(pixels64[1], 1.0);
  EXPECT_EQ(number, 2);
}

/// The image of sample 0 as an input of this shape.
static std::vector<float> readImage(const Dataset &dataset,
                                    std::vector<int64_t> shape) {
  PackedInput image(input("image", ElementType::f32, std::move(shape)));
  Status status = dataset.checkInput(*image);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<float> pixels(sampleElements(*image));
  status = dataset.write(*image, {0, 0},
                         reinterpret_cast<std::byte *>(pixels.data()));
  EXPECT_TRUE(status.ok()) << status.message();
  for (float &pixel : pixels)
    pixel *= 255 / 51.0f; // As the files of these tests count.
  return pixels;
}

// The check at the opening does not hold for bytes that were written later.
TEST(IdxDataset, ChecksLabelsAsTheyAreRead) {
  TemporaryFile images(idxImages(3)), labels(idxLabels(3));
  auto dataset = open(idxData(images.path(), labels.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  std::string changed = idxLabels(3);
  changed.back() = '\x0a';
  writeFile(labels.path(), changed);
  PackedInput label(input("label", ElementType::i32, {}));
  int32_t number;
  auto *target = reinterpret_cast<std::byte *>(&number);
  EXPECT_TRUE((*dataset)->write(*label, {0, 1}, target).ok());
  expectRejected((*dataset)->write(*label, {0, 2}, target),
                 labels.path() + ": label 10 of sample 2 is not below the "
                                 "number of classes, 10; the file has changed");
}

TEST(IdxDataset, PutsChannelsLast) {
  TemporaryFile labels(idxLabels(1)), grey(idxImages(1));
  std::string planes = bigEndian(0x804) + bigEndian(1) + bigEndian(3) +
                       bigEndian(1) + bigEndian(2);
  for (int i : {0, 1, 2, 3, 4, 5}) // Three channels of two pixels.
    planes += static_cast<char>(i * 51);
  TemporaryFile colour(planes);
  auto coloured = open(idxData(colour.path(), labels.path()));
  ASSERT_TRUE(coloured.ok()) << coloured.status().message();
  EXPECT_EQ(readImage(**coloured, {1, 2, 3}),
            (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(readImage(**coloured, {6}), (std::vector<float>{0, 1, 2, 3, 4, 5}));

  auto dataset = open(idxData(grey.path(), labels.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ(readImage(**dataset, {2, 2, 1}), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(readImage(**dataset, {2, 2, 3}),
            (std::vector<float>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}));

  PackedInput wide(input("image", ElementType::f32, {1, 4, 1}));
  EXPECT_NE((*dataset)->checkInput(*wide).message().find(
                "its images are 2 x 2, input 'image' wants 1 x 4 x 1 (height x "
                "width x channels)"),
            std::string::npos);
  PackedInput two(input("image", ElementType::f32, {1, 2, 2}));
  EXPECT_EQ((*coloured)->checkInput(*two).code(), Code::inputRejected);
}

TEST(IdxDataset, HeldOutFilesAreReadWithTheSameSettings) {
  TemporaryFile images(idxImages(3)), labels(idxLabels(3));
  TemporaryFile otherImages(idxImages(2)), otherLabels(idxLabels(2));
  EvaluationT heldOut;
  heldOut.path = otherImages.path();
  heldOut.labels_path = otherLabels.path();
  DataT data = idxData(images.path(), labels.path());
  auto dataset = openHeldOut(data, heldOut);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 2u);
  data.classes = 1;
  EXPECT_EQ(openHeldOut(data, heldOut).status().code(), Code::inputRejected);
}

static std::string pack(const std::string &bytes) {
  TemporaryFile packed;
  gzFile file = ::gzopen(packed.path().c_str(), "wb");
  ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  ::gzclose(file);
  return packed.read();
}

TEST(IdxDataset, ReadsGzip) {
  TemporaryFile images(pack(idxImages(3))), labels(idxLabels(3));
  auto dataset = open(idxData(images.path(), labels.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 3u);
}

// All members of a gzip file are its contents, and none may be damaged: the
// rest of the samples would be missing, silently.
TEST(IdxDataset, ReadsEveryMemberOfGzip) {
  std::string bytes = idxImages(3), first = pack(bytes.substr(0, 20)),
              second = pack(bytes.substr(20));
  TemporaryFile images(first + second), labels(idxLabels(3));
  auto dataset = open(idxData(images.path(), labels.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 3u);
  std::string place = "gzip member 2, from byte " +
                      std::to_string(first.size()) + " on, is damaged";
  for (size_t i = 0; i < second.size(); ++i) {
    if (i >= 4 && i < 10)
      continue; // Time and system: of no account.
    std::string damaged = second;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    writeFile(images.path(), first + damaged);
    expectRejected(idxData(images.path(), labels.path()), place);
  }
  for (const std::string &rest :
       {second.substr(0, 1), second.substr(0, second.size() - 1),
        std::string(100, '\0'), std::string("more")}) {
    writeFile(images.path(), first + rest);
    expectRejected(idxData(images.path(), labels.path()), place);
  }
}

TEST(IdxDataset, ReadsFashionMnist) {
  std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  auto dataset = open(idxData(folder + "t10k-images-idx3-ubyte.gz",
                              folder + "t10k-labels-idx1-ubyte.gz"));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 10000u);
}

TEST(IdxDataset, RejectsBadFiles) {
  TemporaryFile images(idxImages(3)), labels(idxLabels(3));
  TemporaryFile text("no pictures at all"), brief(bigEndian(0x803));
  TemporaryFile cut(idxImages(3).substr(0, 20)), few(idxLabels(2));
  TemporaryFile huge(bigEndian(0x804) + bigEndian(~0u) + bigEndian(~0u) +
                     bigEndian(~0u) + bigEndian(~0u));
  TemporaryFile none(bigEndian(0x803) + std::string(12, '\0'));
  expectRejected(idxData(text.path(), labels.path()), "magic is");
  expectRejected(idxData(brief.path(), labels.path()), "within its header");
  expectRejected(idxData(cut.path(), labels.path()),
                 "has 4 bytes after its header, its sizes want 12");
  expectRejected(idxData(huge.path(), labels.path()), "more than");
  expectRejected(idxData(none.path(), labels.path()), "no samples");
  expectRejected(idxData(images.path(), few.path()),
                 "has 2 labels for 3 images");
  expectRejected(idxData(images.path(), images.path()), "labels have 4 bytes");
  expectRejected(idxData(images.path(), ""), "no path of labels");
  DataT data = idxData(images.path(), labels.path());
  data.classes = 2;
  expectRejected(data, "label 2 of sample 2 is not below the number of "
                       "classes, 2");
}

} // namespace kiln::test
