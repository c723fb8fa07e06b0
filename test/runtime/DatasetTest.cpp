// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Dataset.h"
#include "SampleArtifact.h"
#include "runtime/data/Feeder.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <set>

namespace kiln::test {

using namespace artifact;

/// A flatbuffer of one table, kept alive beside the pointer into it.
template <typename Table, typename Native> class Packed {
public:
  explicit Packed(const Native &native) {
    builder_.Finish(Table::Pack(builder_, &native));
  }
  const Table &operator*() const {
    return *flatbuffers::GetRoot<Table>(builder_.GetBufferPointer());
  }

private:
  flatbuffers::FlatBufferBuilder builder_;
};

static Expected<std::unique_ptr<Dataset>> open(const DataT &data) {
  Packed<Data, DataT> packed(data);
  return Dataset::open(*packed);
}

static DataT textData(const std::string &path, uint64_t sequence = 4) {
  DataT data;
  data.kind = "text";
  data.path = path;
  data.tokenizer = "bytes";
  data.sequence = sequence;
  data.vocabulary = 256;
  return data;
}

static InputT input(const std::string &name, ElementType type,
                    std::vector<int64_t> shape) {
  InputT result;
  result.name = name;
  result.element_type = type;
  result.samples = 1;
  result.sample_shape = std::move(shape);
  return result;
}

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
  data.vocabulary = 10;
  return data;
}

static void expectRejected(const DataT &data, const std::string &message) {
  Status status = open(data).status();
  EXPECT_EQ(status.code(), Code::inputRejected) << status.message();
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message();
}

TEST(TokenDataset, LabelsAreTokensOneFurtherOn) {
  TemporaryFile file("abcdefghijklm"); // 13 = 3 * 4 + 1: exactly 3 samples.
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 3u);
  Packed<Input, InputT> tokens(input("tokens", ElementType::i32, {4}));
  Packed<Input, InputT> labels(input("labels", ElementType::i64, {2, 2}));
  ASSERT_TRUE((*dataset)->checkInput(*tokens).ok());
  ASSERT_TRUE((*dataset)->checkInput(*labels).ok());
  int32_t first[4];
  int64_t second[4];
  (*dataset)->write(*tokens, 2, reinterpret_cast<std::byte *>(first));
  (*dataset)->write(*labels, 2, reinterpret_cast<std::byte *>(second));
  EXPECT_EQ(first[0], 'i');
  EXPECT_EQ(first[3], 'l');
  EXPECT_EQ(second[0], 'j');
  EXPECT_EQ(second[3], 'm');
}

TEST(TokenDataset, ReadsBothWidths) {
  for (uint32_t width : {2, 4}) {
    std::string bytes;
    for (int i = 0; i < 9; ++i) {
      bytes += static_cast<char>(i);
      bytes += '\x01';
      bytes += std::string(width - 2, '\0');
    }
    TemporaryFile file(bytes);
    DataT data = textData(file.path());
    data.kind = "tokens";
    data.width = width;
    data.vocabulary = 265;
    auto dataset = open(data);
    ASSERT_TRUE(dataset.ok()) << dataset.status().message();
    EXPECT_EQ((*dataset)->samples(), 2u);
    Packed<Input, InputT> tokens(input("tokens", ElementType::i32, {4}));
    int32_t values[4];
    (*dataset)->write(*tokens, 1, reinterpret_cast<std::byte *>(values));
    EXPECT_EQ(values[3], 263);
    data.vocabulary = 263;
    expectRejected(data, "token 7 has id 263, which is not below the "
                         "vocabulary of 263");
  }
}

TEST(TokenDataset, RejectsBadFiles) {
  expectRejected(textData("/nonexistent/corpus.txt"),
                 "data file /nonexistent/corpus.txt: No such file");
  expectRejected(textData("/tmp"), "not a regular file");
  TemporaryFile empty(""), brief("abcd"), odd("abcdefghi");
  expectRejected(textData(empty.path()), "is empty");
  expectRejected(textData(brief.path()), "has 4 tokens, one sample takes 5");
  DataT data = textData(odd.path());
  data.kind = "tokens";
  data.width = 2;
  expectRejected(data, "has 9 bytes, not a multiple of a token's 2");
  data.width = 3;
  expectRejected(data, "tokens of 3 bytes, wanted 2 or 4");
  data = textData(odd.path());
  data.vocabulary = 'e';
  expectRejected(data, "token 4 has id 101");
  data = textData(odd.path());
  data.tokenizer = "words";
  expectRejected(data, "tokenizer 'words'");
  data = textData(odd.path(), 0);
  expectRejected(data, "sequence is 0");
  data.kind = "pictures";
  expectRejected(data, "data kind 'pictures' is not one of");
}

TEST(TokenDataset, RejectsInputsThatDoNotFit) {
  TemporaryFile file("abcdefghijklm");
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  for (const InputT &bad : {input("image", ElementType::i32, {4}),
                            input("tokens", ElementType::f32, {4}),
                            input("tokens", ElementType::i32, {5})}) {
    Packed<Input, InputT> packed(bad);
    EXPECT_EQ((*dataset)->checkInput(*packed).code(), Code::inputRejected);
  }
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
  (*dataset)->write(*image, 0, reinterpret_cast<std::byte *>(pixels));
  (*dataset)->write(*precise, 1, reinterpret_cast<std::byte *>(pixels64));
  (*dataset)->write(*label, 2, reinterpret_cast<std::byte *>(&number));
  EXPECT_EQ(pixels[1], 51.0f / 255.0f);
  EXPECT_EQ(pixels64[1], 1.0);
  EXPECT_EQ(number, 2);
}

TEST(IdxDataset, ReadsGzip) {
  TemporaryFile images, labels(idxLabels(3));
  std::string bytes = idxImages(3);
  gzFile file = ::gzopen(images.path().c_str(), "wb");
  ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  ::gzclose(file);
  auto dataset = open(idxData(images.path(), labels.path()));
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ((*dataset)->samples(), 3u);
  std::string packed = images.read();
  TemporaryFile truncated(packed.substr(0, packed.size() - 6));
  expectRejected(idxData(truncated.path(), labels.path()), "gzip stream");
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
  data.vocabulary = 2;
  expectRejected(data, "label 2 of sample 2 is not below the number of "
                       "classes, 2");
}

// Batches run on over the end of an epoch, and each epoch holds every sample
// once.
TEST(SampleOrder, CoversEveryEpochOnce) {
  SampleOrder order{7, 3, 5, true};
  std::vector<uint64_t> samples;
  for (uint64_t step = 0; step < 7; ++step)
    for (uint64_t j = 0; j < 3; ++j)
      samples.push_back(order.at(step, j));
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    std::set<uint64_t> seen(samples.begin() + epoch * 7,
                            samples.begin() + (epoch + 1) * 7);
    EXPECT_EQ(seen.size(), 7u);
  }
  order.isShuffled = false;
  EXPECT_EQ(order.at(2, 1), 0u); // Sample 7 is the first of epoch 1.
}

TEST(Feeder, GivesTheSameBatchesFromAnyFirstStep) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += static_cast<char>(i * 7);
  TemporaryFile file(text);
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  ProgramT native;
  native.name = "train";
  addInput(native, "tokens", ElementType::i32, 6, {4}, 0, 128);
  addInput(native, "labels", ElementType::i32, 6, {4}, 256, 256); // Not staged.
  Packed<Program, ProgramT> program(native);
  SampleOrder order{(*dataset)->samples(), 6, 1, true};
  auto batches = [&](uint64_t first, uint64_t last) {
    std::vector<int32_t> arena(88);
    std::vector<std::vector<int32_t>> result;
    Feeder feeder(**dataset, order, *program,
                  reinterpret_cast<std::byte *>(arena.data()), first);
    for (uint64_t step = first; step < last; ++step) {
      feeder.next();
      result.push_back({arena.begin(), arena.begin() + 24});
      result.push_back({arena.begin() + 64, arena.begin() + 88});
    }
    return result;
  };
  auto all = batches(0, 50);
  for (size_t i = 0; i < all.size(); i += 2) // Labels follow tokens.
    EXPECT_EQ(all[i][1], all[i + 1][0]);
  auto rest = batches(20, 50);
  EXPECT_EQ(std::vector(all.begin() + 40, all.end()), rest);
}

} // namespace kiln::test
