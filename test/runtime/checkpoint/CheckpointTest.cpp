// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/NarrowFloats.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void ignore(const std::string &) {}

static Status save(const CheckpointStore &store, uint64_t step,
                   uint64_t keep = 3, int64_t elements = 100,
                   const std::string &vocabulary = "",
                   const Warn &warn = ignore) {
  Manifest manifest;
  manifest.writtenBy = "test";
  manifest.model = "sample";
  manifest.step = step;
  manifest.globalBatch = 8;
  manifest.samples = 124;
  manifest.publicNames = {{"weight", {"a.weight", "b.weight"}}};
  return store.save(manifest, tensors("weight", elements),
                    tensors("weight.moment", elements), keep, warn, vocabulary);
}

/// One that can be read.
static std::optional<Checkpoint> openNewest(const CheckpointStore &store,
                                            const Warn &warn = ignore) {
  Expected<std::optional<Checkpoint>> newest = store.openNewest(warn);
  EXPECT_TRUE(newest.ok()) << newest.status().message();
  return newest.ok() ? std::move(*newest) : std::nullopt;
}

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
  EXPECT_TRUE(store.list()->empty());
  for (uint64_t step : {0, 10, 20, 30})
    ASSERT_TRUE(save(store, step, 2).ok());
  std::vector<CheckpointStore::Entry> entries = *store.list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].step, 20u);
  EXPECT_TRUE(entries[1].path.ends_with("/step-000030"));
  EXPECT_EQ(fs::read_symlink(store.folder() + "/LATEST"), "step-000030");
  std::optional<Checkpoint> newest = openNewest(store);
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->manifest().step, 30u);
  EXPECT_EQ(newest->tensors().size(), 2u);
  // Saving the same step again replaces the old checkpoint.
  ASSERT_TRUE(save(store, 30, 2, 50).ok());
  EXPECT_EQ(openNewest(store)->tensors().at("weight").entry->shape[0], 50);
}

// A course that the run has left may be what a user wants after all.
TEST(Checkpoint, CoursesThatARunHasLeftStay) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  for (int64_t elements : {10, 20}) {
    for (uint64_t step : {1, 2, 3})
      ASSERT_TRUE(save(store, step, 9, elements).ok());
    ASSERT_TRUE(
        store.setAsideAfter(1, elements == 10 ? ".old" : ".old.2").ok());
    EXPECT_EQ(openNewest(store)->manifest().step, 1u);
  }
  std::vector<CheckpointStore::Entry> aside = *store.listSetAside();
  ASSERT_EQ(aside.size(), 4u);
  const char *names[] = {"step-000002.old", "step-000002.old.2",
                         "step-000003.old", "step-000003.old.2"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(aside[i].path, folder / names[i]);
    Expected<Checkpoint> checkpoint = Checkpoint::open(aside[i].path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(checkpoint->tensors().at("weight").entry->shape[0],
              i % 2 ? 20 : 10);
  }
  ASSERT_TRUE(save(store, 2).ok());
  EXPECT_EQ(store.setAsideAfter(1, ".old").code(), Code::io);
}

// Only what Kiln has made is removed, whatever the name.
TEST(Checkpoint, FilesOfTheUserStay) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  for (const char *name : {"step-000003", "mine.tmp-1", "step-000009.tmp-mine",
                           "LATEST.tmp-mine"}) {
    fs::create_directory(folder / name);
    writeFile(folder / (std::string(name) + "/notes"), "mine");
  }
  ASSERT_TRUE(save(store, 1, 1).ok());
  writeFile(folder / "step-000001/notes", "mine");
  store.removeRemains();
  ASSERT_TRUE(save(store, 4, 1).ok());
  for (const char *name : {"step-000001", "step-000003", "mine.tmp-1",
                           "step-000009.tmp-mine", "LATEST.tmp-mine"})
    EXPECT_EQ(readFile(folder / (std::string(name) + "/notes")), "mine");
  EXPECT_FALSE(isCheckpoint(folder / "step-000001"));
  // One in the place of a checkpoint gets another name.
  std::vector<std::string> warnings;
  auto warn = [&](const std::string &text) { warnings.push_back(text); };
  ASSERT_TRUE(save(store, 3, 9, 100, "", warn).ok());
  EXPECT_TRUE(isCheckpoint(folder / "step-000003"));
  EXPECT_EQ(readFile(folder / "step-000003.old/notes"), "mine");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("are now in " + (folder / "step-000003.old")),
            std::string::npos)
      << warnings[0];
}

// The checkpoint is there all the same.
TEST(Checkpoint, ALinkThatCannotBeMadeIsAWarning) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  writeFile(folder / "LATEST", "mine");
  std::vector<std::string> warnings;
  ASSERT_TRUE(save(store, 1, 3, 100, "", [&](const std::string &text) {
                warnings.push_back(text);
              }).ok());
  EXPECT_EQ(warnings, std::vector<std::string>{(folder / "LATEST") +
                                               ": is no link, and stays"});
  EXPECT_EQ(readFile(folder / "LATEST"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
}

TEST(Checkpoint, RemainsOfASaveAreRemoved) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  fs::create_directory(folder / "step-000002.tmp-12-0");
  writeFile(folder / "step-000002.tmp-12-0/model.safetensors", "half");
  fs::create_symlink("step-000002", folder / "LATEST.tmp-12-1");
  EXPECT_EQ(openNewest(store)->manifest().step, 1u);
  store.removeRemains();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
  EXPECT_EQ(store.list()->size(), 1u);
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
      EXPECT_EQ(openNewest(store, [&](const std::string &) { ++warnings; })
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
  EXPECT_FALSE(openNewest(store));
}

// It may be intact. To go on from an older one would set it aside.
TEST(Checkpoint, OneThatCannotBeReadIsNotPassedOver) {
  TemporaryFolder folder;
  CheckpointStore store(folder / "run/checkpoints");
  ASSERT_TRUE(save(store, 1).ok());
  ASSERT_TRUE(save(store, 2).ok());
  std::string path = store.pathOf(2) + "/optim.safetensors";
  std::string bytes = readFile(path);
  fs::remove(path);
  fs::create_symlink(path, path);
  Expected<std::optional<Checkpoint>> newest = store.openNewest(ignore);
  EXPECT_EQ(newest.status().code(), Code::io);
  EXPECT_TRUE(newest.status().message().starts_with(
      path + ": cannot read: Too many levels of symbolic links; "))
      << newest.status().message();
  // Nor is one that the process has no descriptor for.
  fs::remove(path);
  writeFile(path, bytes);
  struct rlimit before, none;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  Status opened = Checkpoint::open(store.pathOf(2)).status();
  Status listed = store.list().status();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(opened.code(), Code::io);
  EXPECT_EQ(listed.code(), Code::io);
  EXPECT_EQ(listed.message(),
            store.folder() + ": cannot read: Too many open files");
  EXPECT_EQ(openNewest(store)->manifest().step, 2u);
  // Another kind of file is damage.
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(openNewest(store)->manifest().step, 1u);
  fs::remove_all(store.pathOf(2));
  writeFile(store.pathOf(2), "mine");
  EXPECT_EQ(openNewest(store)->manifest().step, 1u);
}

TEST(Checkpoint, AFolderOfSomebodyElseIsNotTakenForAnEmptyOne) {
  TemporaryFolder folder;
  std::string run = folder / "run";
  CheckpointStore store(run + "/checkpoints");
  ASSERT_TRUE(save(store, 1).ok());
  fs::permissions(folder.path(), fs::perms(0755));
  for (const std::string &closed : {store.folder(), run}) {
    fs::permissions(closed, fs::perms::none);
    pid_t child = ::fork();
    if (child == 0) { // As a user whom permissions bind.
      if (::geteuid() == 0 && ::setuid(65534) != 0)
        ::_exit(2);
      Status status = CheckpointStore::ofRun(run).openNewest(ignore).status();
      ::_exit(status.code() == Code::io &&
                      status.message() ==
                          store.folder() + ": cannot read: Permission denied"
                  ? 0
                  : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << closed;
    fs::permissions(closed, fs::perms(0755));
  }
  EXPECT_TRUE(CheckpointStore(folder / "nowhere").list()->empty());
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
    // The user knows nothing of a temporary folder.
    EXPECT_TRUE(status.message().starts_with(folder / "step-000002/"))
        << status.message();
    EXPECT_EQ(store.list()->size(), 1u);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}),
              2); // The checkpoint and LATEST.
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(openNewest(store)->manifest().step, 1u);
  EXPECT_TRUE(save(store, 2, 1, 20000).ok());
}

TEST(Checkpoint, ExportsPublicNames) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  std::optional<Checkpoint> checkpoint = openNewest(store);
  ASSERT_TRUE(checkpoint->exportWeights(folder / "out.safetensors").ok());
  Expected<Safetensors> file = Safetensors::open(folder / "out.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->find("a.weight"));
  EXPECT_TRUE(file->find("b.weight"));
  EXPECT_EQ(file->entries().size(), 2u);
  EXPECT_EQ(checkpoint->exportWeights("/nonexistent/out").code(), Code::io);
  EXPECT_FALSE(fs::exists(folder / "out.safetensors.vocabulary.txt"));
  // Links are followed, as by everything else that writes.
  fs::create_symlink("real.safetensors", folder / "link.safetensors");
  ASSERT_TRUE(checkpoint->exportWeights(folder / "link.safetensors").ok());
  EXPECT_TRUE(fs::is_symlink(folder / "link.safetensors"));
  EXPECT_TRUE(Safetensors::open(folder / "real.safetensors").ok());
}

TEST(Checkpoint, ExportsAnotherElementType) {
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1).ok());
  std::optional<Checkpoint> checkpoint = openNewest(store);
  std::string path = folder / "out.safetensors";
  ASSERT_TRUE(
      checkpoint->exportWeights(path, artifact::ElementType::bf16).ok());
  std::vector<float> wanted(100);
  std::vector<Bfloat16> found(100);
  const Checkpoint::Tensor &kept = checkpoint->tensors().at("weight");
  ASSERT_TRUE(
      kept.file->read(*kept.entry, 0, std::as_writable_bytes(std::span(wanted)))
          .ok());
  Expected<Safetensors> file = Safetensors::open(path);
  ASSERT_TRUE(file.ok());
  for (const char *name : {"a.weight", "b.weight"}) {
    ASSERT_EQ(file->find(name)->describe(), "BF16 [100]");
    ASSERT_TRUE(file->read(*file->find(name), 0,
                           std::as_writable_bytes(std::span(found)))
                    .ok());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(float(found[i]), float(Bfloat16(wanted[i]))) << i;
  }
  // Some of the values are beyond the range of f16.
  std::string before = readFile(path);
  Status status = checkpoint->exportWeights(path, artifact::ElementType::f16);
  EXPECT_EQ(status.code(), Code::inputRejected);
  EXPECT_NE(status.message().find("too large for F16"), std::string::npos)
      << status.message();
  EXPECT_EQ(readFile(path), before);
}

// Neither file may be new without the other.
TEST(Checkpoint, AFailedExportChangesNothing) {
  TemporaryFolder folder;
  CheckpointStore store(folder / "checkpoints");
  ASSERT_TRUE(save(store, 1, 3, 20000, "[PAD]\n[UNK]\na\n").ok());
  std::optional<Checkpoint> checkpoint = openNewest(store);
  writeFile(folder / "w", "old");
  writeFile(folder / "w.vocabulary.txt", "old words");
  struct rlimit before, small;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 5000;
  auto *handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status = checkpoint->exportWeights(folder / "w");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_TRUE(status.message().starts_with(folder / "w: "));
  EXPECT_EQ(readFile(folder / "w"), "old");
  EXPECT_EQ(readFile(folder / "w.vocabulary.txt"), "old words");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 3);
}

// Weights of an embedding are of no use without the words of its rows.
TEST(Checkpoint, KeepsAndExportsTheVocabulary) {
  const std::string words = "[PAD]\n[UNK]\ncaf\xe9\n";
  TemporaryFolder folder;
  CheckpointStore store(folder.path());
  ASSERT_TRUE(save(store, 1, 3, 100, words).ok());
  std::string kept = store.list()->back().path + "/vocabulary.txt";
  EXPECT_EQ(readFile(kept), words);
  std::optional<Checkpoint> checkpoint = openNewest(store);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->vocabulary(), words);
  ASSERT_TRUE(checkpoint->exportWeights(folder / "out.safetensors").ok());
  std::string beside = folder / "out.safetensors.vocabulary.txt";
  EXPECT_EQ(readFile(beside), words);
  Expected<Safetensors> file = Safetensors::open(folder / "out.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(vocabularyHashOf(*file), sha256(words));

  std::string path = folder / "out.safetensors";
  EXPECT_TRUE(checkVocabulary(path, sha256(words), words).ok());
  EXPECT_TRUE(checkVocabulary(path, sha256(words), "").ok());
  EXPECT_TRUE(checkVocabulary(path, "", words).ok());
  Status other = checkVocabulary(path, sha256(words), "[PAD]\n[UNK]\na\n");
  EXPECT_EQ(other.code(), Code::inputRejected);
  EXPECT_NE(
      other.message().find("data.vocabulary=" + beside + " takes the words"),
      std::string::npos)
      << other.message();
  // It can be pasted.
  fs::create_directory(folder / "a b");
  fs::copy(path, folder / "a b/w");
  writeFile(folder / "a b/w.vocabulary.txt", words);
  other = checkVocabulary(folder / "a b/w", sha256(words), "[PAD]\n");
  EXPECT_NE(other.message().find("data.vocabulary='" +
                                 (folder / "a b/w.vocabulary.txt'")),
            std::string::npos)
      << other.message();

  writeFile(kept, "[PAD]\n[UNK]\ncafe\n");
  EXPECT_FALSE(openNewest(store));
}

} // namespace kiln::test
