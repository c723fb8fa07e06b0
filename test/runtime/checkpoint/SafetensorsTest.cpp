// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/checkpoint/ConvertElements.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace kiln::test {

static TensorSource source(const std::string &name, const std::string &dtype,
                           std::vector<int64_t> shape,
                           const std::string &bytes) {
  return {{name, dtype, std::move(shape)}, [bytes](OutputFile &file) {
            return file.write(std::as_bytes(std::span(bytes)));
          }};
}

/// A file with this header and so many bytes of data.
static std::string fileWith(const std::string &header, size_t dataBytes) {
  uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(dataBytes, 'x');
}

static Status openText(const std::string &text) {
  TemporaryFile file(text);
  return Safetensors::open(file.path()).status();
}

TEST(Safetensors, ReadsWhatItWrites) {
  TemporaryFolder folder;
  Expected<OutputFile> file = OutputFile::create(folder / "a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(writeSafetensors(*file,
                               {source("b", "F32", {2, 1}, "12345678"),
                                source("empty", "I64", {0}, ""),
                                source("wide", "F64", {}, "abcdefgh"),
                                source("é", "BF16", {1}, "xy")},
                               {{"format", "pt"}})
                  .ok());
  ASSERT_TRUE(file->finish().ok());
  EXPECT_EQ(file->hash(), *sha256OfFile(folder / "a"));
  Expected<Safetensors> read = Safetensors::open(folder / "a");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->metadata().at("format"), "pt");
  ASSERT_EQ(read->entries().size(), 4u);
  const Safetensors::Entry *b = read->find("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->describe(), "F32 [2, 1]");
  EXPECT_EQ(b->begin % 4, 0u);
  std::string bytes(4, '\0');
  ASSERT_TRUE(read->read(*b, 4, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, "5678");
  EXPECT_FALSE(
      read->read(*b, 5, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(read->find("nothing"), nullptr);
  EXPECT_FALSE(OutputFile::create(folder / "a").ok());
  Expected<OutputFile> other = OutputFile::create(folder / "b");
  EXPECT_EQ(
      writeSafetensors(*other, {source("\xff", "F32", {0}, "")}, {}).code(),
      Code::inputRejected);
}

TEST(Safetensors, RejectsWhatAnEnemyMightWrite) {
  const std::string good =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_TRUE(openText(fileWith(good, 8)).ok());
  struct {
    std::string header;
    size_t dataBytes;
    const char *message;
  } cases[] = {
      {good, 7, "tensors end at byte 8"},
      {good, 9, "tensors end at byte 8"},
      {"[" + good + "]", 8, "does not begin with '{'"},
      {good.substr(0, 20), 8, "not JSON at byte"},
      {good + "x", 8, "not JSON at byte"},
      {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8,
       "unknown dtype 'F33'"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
       "F32 [3] wants 12"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
       "no proper data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8,
       "no proper data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
       0, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8,
       "negative number"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8,
       "no integer"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})",
       8, "has the number"},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8,
       "an array where none belongs"},
      {R"({"a":{"dtype":"F32","shape":{"b":{"c":{}}},"data_offsets":[0,8]}})",
       8, "an object where none belongs"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "lacks"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8, "'dtype' twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8,
       "unknown field 'more'"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "'a' occurs twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "'b' begins at byte 0, wanted 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
       "'a' begins at byte 4, wanted 0"},
      {R"({"a\u0000":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
       "zero byte"},
      {R"({"__metadata__":{"a":1}})", 0, "a number where none belongs"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", 0, "'a' twice"},
      {R"({"a":null})", 0, "null where none belongs"},
      {R"({")" + std::string(5000, 'n') + R"(":{}})", 0, "name has 5000 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
       4, "more than 16"},
  };
  for (const auto &each : cases) {
    Status status = openText(fileWith(each.header, each.dataBytes));
    EXPECT_EQ(status.code(), Code::inputRejected) << each.header;
    EXPECT_NE(status.message().find(each.message), std::string::npos)
        << each.header << "\n"
        << status.message();
  }
  EXPECT_EQ(openText("short").code(), Code::inputRejected);
  EXPECT_EQ(openText(std::string(8, '\xff') + good).code(),
            Code::inputRejected);
  EXPECT_EQ(Safetensors::open("/nonexistent").status().code(),
            Code::inputRejected);
  EXPECT_EQ(Safetensors::open("/tmp").status().code(), Code::inputRejected);
}

TEST(Safetensors, SurvivesDamagedHeaders) {
  const std::string good = fileWith(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[0],"data_offsets":[8,8]}})",
      8);
  std::mt19937 random(1);
  TemporaryFile file;
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = good;
    for (unsigned flips = random() % 3 + 1; flips-- > 0;)
      damaged[random() % damaged.size()] ^= 1 << random() % 8;
    writeFile(file.path(), damaged);
    Expected<Safetensors> opened = Safetensors::open(file.path());
    if (opened.ok()) // A name or a value of data may change unnoticed.
      EXPECT_EQ(opened->entries().size(), 2u);
  }
}

TEST(ConvertElements, AgreesWithTheCompilerForEveryHalf) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    auto stored = static_cast<uint16_t>(bits);
    std::span<const std::byte> bytes = std::as_bytes(std::span(&stored, 1));
    float half, brain;
    convertElements("F16", bytes, artifact::ElementType::f32,
                    std::as_writable_bytes(std::span(&half, 1)));
    convertElements("BF16", bytes, artifact::ElementType::f32,
                    std::as_writable_bytes(std::span(&brain, 1)));
    float wanted = std::bit_cast<_Float16>(stored);
    float wantedBrain = std::bit_cast<float>(bits << 16);
    if (std::isnan(wanted))
      EXPECT_TRUE(std::isnan(half));
    else
      ASSERT_EQ(half, wanted) << bits;
    if (!std::isnan(wantedBrain))
      ASSERT_EQ(brain, wantedBrain) << bits;
  }
  double wide = 1.0 / 3;
  float narrow;
  convertElements("F64", std::as_bytes(std::span(&wide, 1)),
                  artifact::ElementType::f32,
                  std::as_writable_bytes(std::span(&narrow, 1)));
  EXPECT_EQ(narrow, 1.0f / 3);
  convertElements("F32", std::as_bytes(std::span(&narrow, 1)),
                  artifact::ElementType::f64,
                  std::as_writable_bytes(std::span(&wide, 1)));
  EXPECT_EQ(wide, static_cast<double>(1.0f / 3));
}

} // namespace kiln::test
