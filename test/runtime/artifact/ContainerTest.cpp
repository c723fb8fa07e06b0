// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <sys/stat.h>

namespace kiln::test {

static std::vector<std::byte> sampleContainer() {
  static std::string index(3000, 'i'), kernels(9001, 'k');
  std::vector<Section> sections = {
      {"index", std::as_bytes(std::span(index))},
      {"kernels", std::as_bytes(std::span(kernels))},
      {"empty", {}}};
  return packContainer(sections);
}

static Status parse(std::vector<std::byte> bytes) {
  return Container::parse(std::move(bytes), "x.kiln").status();
}

TEST(Container, ReadsWhatWasWritten) {
  std::string text = "hello";
  std::vector<Section> sections = {{"a", std::as_bytes(std::span(text))},
                                   {"b", {}}};
  TemporaryFile file;
  ASSERT_TRUE(writeContainer(file.path(), sections, "x").ok());
  Expected<Container> container = Container::open(file.path());
  ASSERT_TRUE(container.ok()) << container.status().message();
  ASSERT_EQ(container->sections().size(), 2u);
  EXPECT_EQ(std::memcmp(container->find("a").data(), "hello", 5), 0);
  EXPECT_NE(container->find("b").data(), nullptr);
  EXPECT_EQ(container->find("c").data(), nullptr);
}

TEST(Container, EqualSectionsGiveEqualBytes) {
  EXPECT_EQ(sampleContainer(), sampleContainer());
}

TEST(Container, SectionsAreAligned) {
  EXPECT_EQ(sampleContainer().size() % 4096, 0u); // "empty" ends the file.
  EXPECT_EQ(sampleContainer()[4096], std::byte{'i'});
  EXPECT_EQ(sampleContainer()[8192], std::byte{'k'});
}

// A single damaged bit anywhere must be noticed: header, table, gaps, sections.
TEST(Container, RejectsEveryFlippedBitOfTheFirstPage) {
  const std::vector<std::byte> bytes = sampleContainer();
  for (size_t bit = 0; bit < 4096 * 8; ++bit) {
    std::vector<std::byte> damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    Status status = parse(std::move(damaged));
    ASSERT_EQ(status.code(), Code::inputRejected) << "bit " << bit;
  }
}

TEST(Container, RejectsRandomFlippedBits) {
  const std::vector<std::byte> bytes = sampleContainer();
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = bytes;
    size_t bit = random() % (bytes.size() * 8);
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(parse(std::move(damaged)).code(), Code::inputRejected)
        << "bit " << bit;
  }
}

TEST(Container, RejectsTruncationAndGrowth) {
  const std::vector<std::byte> bytes = sampleContainer();
  for (size_t size = 0; size < bytes.size(); size += size < 400 ? 1 : 37) {
    std::vector<std::byte> damaged(
        bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    Status status = parse(std::move(damaged));
    ASSERT_EQ(status.code(), Code::inputRejected) << size;
    EXPECT_NE(status.message().find("x.kiln"), std::string::npos);
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(parse(std::move(longer)).code(), Code::inputRejected);
}

TEST(Container, NamesBothVersionsAndTheRemedy) {
  std::vector<std::byte> bytes = sampleContainer();
  bytes[8] = std::byte{9};
  std::string message = parse(std::move(bytes)).message();
  EXPECT_EQ(message, "x.kiln: format version is 9, this kiln reads version 5; "
                     "compile again with this kiln");
}

// Hashes alone do not make a table sane: these are intact and still wrong.
TEST(Container, RejectsDuplicateNames) {
  std::vector<Section> sections = {{"a", {}}, {"a", {}}};
  EXPECT_EQ(parse(packContainer(sections)).code(), Code::inputRejected);
}

TEST(Container, ReportsMissingFilesAndFolders) {
  EXPECT_EQ(Container::open("/nonexistent/x").status().code(),
            Code::inputRejected);
  EXPECT_EQ(Container::open("/tmp").status().code(), Code::inputRejected);
}

TEST(Container, MessagesNameTheUsersFile) {
  std::vector<Section> sections = {{"a", {}}};
  Status status = writeContainer("/nonexistent/x", sections, "m.kiln");
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_EQ(status.message().rfind("m.kiln: cannot create: ", 0), 0u);
  EXPECT_EQ(Container::open("/tmp", "m.kiln").status().message(),
            "m.kiln: is not a regular file");
}

TEST(Container, RefusesAPipe) {
  TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(Container::open(folder / "pipe").status().code(),
            Code::inputRejected);
}

} // namespace kiln::test
