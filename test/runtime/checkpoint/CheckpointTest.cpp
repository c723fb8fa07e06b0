// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <sys/resource.h>

namespace kiln::test {

namespace fs = std::filesystem;

static std::vector<TensorSource> tensors(const std::string &name,
                                         int64_t elements) {
  std::string bytes(static_cast<size_t>(elements) * 4, '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 37 + name.size());
  return {{{name, "F32", {elements}}, [bytes](OutputFile &file) {
             return file.write(std::as_bytes(std::span(bytes)));
           }}};
}

static Status save(const CheckpointStore &store, uint64_t step,
                   uint64_t keep = 3, int64_t elements = 100,
                   const std::string &vocabulary = "") {
  Manifest manifest;
  manifest.writtenBy = "test";
  manifest.model = "sample";
  manifest.step = step;
  manifest.globalBatch = 8;
  manifest.samples = 124;
  manifest.publicNames = {{"weight", {"a.weight", "b.weight"}}};
  return store.save(manifest, tensors("weight", elements),
                    tensors("weight.moment", elements), keep, vocabulary);
}

static void ignore(const std::string &) {}

TEST(Manifest, IsCanonical) {
  Manifest manifest;
  manifest.model = "gpt";
  manifest.step = 120;
  manifest.files["model.safetensors"] = {12, "ab"};
  manifest.publicNames["w"] = {"x.w"};
  std::string text = manifest.print();
  Expected<Manifest> read = Manifest::parse(text, "test");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, manifest);
  for (size_t i = 0; i < text.size() * 8; ++i) {
    std::string damaged = text;
    damaged[i / 8] ^= 1 << i % 8;
    EXPECT_FALSE(Manifest::parse(damaged, "test").ok()) << i;
  }
  manifest.files["../model.safetensors"] = {12, "ab"};
  EXPECT_NE(Manifest::parse(manifest.print(), "test")
                .status()
                .message()
                .find("plain name"),
            std::string::npos);
  EXPECT_FALSE(Manifest::parse("", "test").ok());
  EXPECT_FALSE(Manifest::parse("{}", "test").ok());
}

TEST(Checkpoint, KeepsTheNewest) {
  TemporaryFolder folder;
  CheckpointStore store(folder / "run/checkpoints");
  EXPECT_TRUE(store.list().empty());
  for (uint64_t step : {0, 10, 20, 30})
    ASSERT_TRUE(save(store, step, 2).ok());
  std::vector<CheckpointStore::Entry> entries = store.list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].step, 20u);
  EXPECT_TRUE(entries[1].path.ends_with("/step-000030"));
  EXPECT_EQ(fs::read_symlink(store.folder() + "/LATEST"), "step-000030");
  std::optional<Checkpoint> newest = store.openNewest(ignore);
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->manifest().step, 30u);
  EXPECT_EQ(newest->tensors().size(), 2u);
  // Saving the same step again replaces the old checkpoint.
  ASSERT_TRUE(save(store, 30, 2, 50).ok());
  EXPECT_EQ(store.openNewest(ignore)->tensors().at("weight").entry->shape[0],
            50);
  EXPECT_EQ(store.setAsideAfter(20), 1u);
  EXPECT_EQ(store.openNewest(ignore)->manifest().step, 20u);
}

TEST(Checkpoint, RemainsOfASaveAreRemoved) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  fs::create_directory(folder / "step-000002.tmp-12");
  writeFile(folder / "step-000002.tmp-12/model.safetensors", "half");
  EXPECT_EQ(store.openNewest(ignore)->manifest().step, 1u);
  store.removeRemains();
  EXPECT_FALSE(fs::exists(folder / "step-000002.tmp-12"));
  EXPECT_EQ(store.list().size(), 1u);
}

TEST(Checkpoint, EveryFlipAndTruncationIsFound) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  ASSERT_TRUE(save(store, 2).ok());
  std::mt19937 random(1);
  const char *names[] = {"kiln.json", "model.safetensors", "optim.safetensors"};
  for (int i = 0; i < 150; ++i) {
    std::string path = folder / ("step-000002/" + std::string(names[i % 3]));
    std::string whole = readFile(path), damaged = whole;
    if (i < 100)
      damaged[random() % damaged.size()] ^= 1 << random() % 8;
    else
      damaged.resize(random() % damaged.size());
    writeFile(path, damaged);
    Expected<Checkpoint> opened = Checkpoint::open(folder / "step-000002");
    EXPECT_EQ(opened.status().code(), Code::inputRejected) << i;
    if (i % 10 == 0) {
      int warnings = 0;
      EXPECT_EQ(store.openNewest([&](const std::string &) { ++warnings; })
                    ->manifest()
                    .step,
                1u);
      EXPECT_EQ(warnings, 1);
    }
    writeFile(path, whole);
  }
  EXPECT_TRUE(Checkpoint::open(folder / "step-000002").ok());
  writeFile(folder / "step-000002/kiln.json",
            readFile(folder / "step-000002/kiln.json") + " ");
  EXPECT_FALSE(Checkpoint::open(folder / "step-000002").ok());
  fs::remove(folder / "step-000001/model.safetensors");
  EXPECT_NE(Checkpoint::open(folder / "step-000001")
                .status()
                .message()
                .find("is missing"),
            std::string::npos);
  EXPECT_FALSE(store.openNewest(ignore));
}

TEST(Checkpoint, AFailedWriteLeavesTheOldOne) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  struct rlimit before, small;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  auto *handler = std::signal(SIGXFSZ, SIG_IGN);
  // Every point of the save at which the disk may turn out to be full.
  for (rlim_t bytes : {0, 100, 5000, 40000}) {
    small.rlim_cur = bytes;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    Status status = save(store, 2, 1, 20000);
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(status.code(), Code::io);
    EXPECT_NE(status.message().find("File too large"), std::string::npos)
        << status.message();
    EXPECT_EQ(store.list().size(), 1u);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}),
              2); // The checkpoint and LATEST.
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(store.openNewest(ignore)->manifest().step, 1u);
  EXPECT_TRUE(save(store, 2, 1, 20000).ok());
}

TEST(Checkpoint, ExportsPublicNames) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  std::optional<Checkpoint> checkpoint = store.openNewest(ignore);
  ASSERT_TRUE(checkpoint->exportWeights(folder / "out.safetensors").ok());
  Expected<Safetensors> file = Safetensors::open(folder / "out.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->find("a.weight"));
  EXPECT_TRUE(file->find("b.weight"));
  EXPECT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(checkpoint->exportWeights("/nonexistent/out").code(), Code::io);
  EXPECT_FALSE(fs::exists(folder / "out.vocabulary.txt"));
}

// Weights of an embedding are of no use without the words of its rows.
TEST(Checkpoint, KeepsAndExportsTheVocabulary) {
  const std::string words = "[PAD]\n[UNK]\ncaf\xe9\n";
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1, 3, 100, words).ok());
  std::string kept = store.list().back().path + "/vocabulary.txt";
  EXPECT_EQ(readFile(kept), words);
  std::optional<Checkpoint> checkpoint = store.openNewest(ignore);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->vocabulary(), words);
  ASSERT_TRUE(checkpoint->exportWeights(folder / "out.safetensors").ok());
  EXPECT_EQ(readFile(folder / "out.vocabulary.txt"), words);
  Expected<Safetensors> file = Safetensors::open(folder / "out.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(vocabularyHashOf(*file), sha256(words));

  std::string path = folder / "out.safetensors";
  EXPECT_TRUE(checkVocabulary(path, sha256(words), words).ok());
  EXPECT_TRUE(checkVocabulary(path, sha256(words), "").ok());
  EXPECT_TRUE(checkVocabulary(path, "", words).ok());
  Status other = checkVocabulary(path, sha256(words), "[PAD]\n[UNK]\na\n");
  EXPECT_EQ(other.code(), Code::inputRejected);
  EXPECT_NE(other.message().find("data.vocabulary=" + folder.path() +
                                 "/out.vocabulary.txt takes the words"),
            std::string::npos)
      << other.message();

  writeFile(kept, "[PAD]\n[UNK]\ncafe\n");
  EXPECT_FALSE(store.openNewest(ignore));
}

} // namespace kiln::test
