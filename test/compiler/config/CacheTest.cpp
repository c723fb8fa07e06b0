// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ConfigTexts.h"

#include "compiler/config/Cache.h"
#include "compiler/config/CacheKey.h"
#include "runtime/artifact/Sha256.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void writeFile(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A key like that of a hash.
std::string keyOf(int digit) {
  return "kiln_" + std::string(63, '0') + std::to_string(digit);
}

class CacheTest : public testing::Test {
protected:
  CacheTest() {
    char name[] = "/tmp/kiln-cache-XXXXXX";
    scratch = mkdtemp(name);
    folder = scratch + "/a/b/kiln";
  }
  ~CacheTest() override {
    std::error_code error;
    fs::remove_all(scratch, error);
  }

  Cache open() {
    return Cache(folder,
                 [this](const std::string &text) { warnings.push_back(text); });
  }

  /// Stands for the check of a container: the text must carry its own hash.
  static Status isIntact(const std::string &path) {
    std::string text = fs::is_directory(path) ? "" : readFile(path);
    return text.size() > 64 && sha256(text.substr(64)) == text.substr(0, 64)
               ? Status()
               : Status(Code::inputRejected, path + ": has another hash");
  }
  static std::string sealed(const std::string &text) {
    return sha256(text) + text;
  }

  std::string sourceFile(const std::string &text) {
    std::string path = scratch + "/source";
    writeFile(path, sealed(text));
    return path;
  }

  std::string scratch, folder;
  std::vector<std::string> warnings;
};

// kiln verify has its temporary files elsewhere then.
TEST_F(CacheTest, AFullFolderHasNoTemporaryFiles) {
  EXPECT_EQ(open().scratchParent(), folder);
  rlimit before, small;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 1000;
  auto *handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string parent = open().scratchParent();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(parent, fs::temp_directory_path());
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(CacheTest, FindsWhatWasPublished) {
  Cache cache = open();
  EXPECT_EQ(cache.lookUp(keyOf(1), isIntact), "");
  EXPECT_FALSE(fs::exists(folder)) << "a look-up must create nothing";
  std::string path = cache.publish(keyOf(1), sourceFile("hello"));
  EXPECT_EQ(path, folder + "/" + keyOf(1) + ".kiln");
  EXPECT_EQ(cache.lookUp(keyOf(1), isIntact), path);
  EXPECT_EQ(readFile(path), sealed("hello"));
  struct stat status;
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_THAT(warnings, ElementsAre());
}

TEST_F(CacheTest, CorruptEntryIsAMissWithOneWarning) {
  Cache cache = open();
  std::string path = cache.publish(keyOf(1), sourceFile("hello"));
  for (const std::string &damage :
       {std::string(), sealed("hello").substr(0, 66), sealed("hello") + "x"}) {
    warnings.clear();
    Cache fresh = open();
    writeFile(path, damage);
    EXPECT_EQ(fresh.lookUp(keyOf(1), isIntact), "");
    EXPECT_EQ(fresh.lookUp(keyOf(1), isIntact), "");
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("corrupt cache entry")));
    EXPECT_FALSE(fs::exists(path));
    EXPECT_EQ(fresh.publish(keyOf(1), sourceFile("hello")), path);
  }
}

TEST_F(CacheTest, AFolderInPlaceOfAnEntryIsRemoved) {
  open().publish(keyOf(1), sourceFile("x"));
  fs::remove(folder + "/" + keyOf(1) + ".kiln");
  fs::create_directories(folder + "/" + keyOf(1) + ".kiln/more");
  EXPECT_EQ(open().lookUp(keyOf(1), isIntact), "");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("corrupt cache entry, removed")));
  EXPECT_EQ(open().lookUp(keyOf(1), isIntact), "");
  EXPECT_NE(open().publish(keyOf(1), sourceFile("x")), "");
  EXPECT_NE(open().lookUp(keyOf(1), isIntact), "");
  EXPECT_EQ(warnings.size(), 1u) << "it is gone";
}

TEST_F(CacheTest, UnusableFolderIsOneWarning) {
  writeFile(scratch + "/a", "a file where a folder should be");
  Cache cache = open();
  EXPECT_EQ(cache.publish(keyOf(1), sourceFile("x")), "");
  EXPECT_EQ(cache.publish(keyOf(2), sourceFile("x")), "");
  EXPECT_EQ(cache.lookUp(keyOf(1), isIntact), "");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("no cache: ")));
}

TEST_F(CacheTest, FolderThatOthersMayWriteIsNotTrusted) {
  Cache cache = open();
  cache.publish(keyOf(1), sourceFile("x"));
  chmod(folder.c_str(), 0777);
  EXPECT_EQ(cache.lookUp(keyOf(1), isIntact), "");
  EXPECT_EQ(cache.publish(keyOf(2), sourceFile("x")), "");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("others may write")));
}

/// Publishes and looks up the same few keys; returns whether all was well.
bool hammer(const std::string &folder, const std::string &source, int number) {
  bool isGood = true;
  Cache cache(folder, [&](const std::string &) { isGood = false; });
  for (int round = 0; round < 50; ++round) {
    std::string key = keyOf((number + round) % 8);
    std::string path = cache.lookUp(key, [&](const std::string &entry) {
      return readFile(entry) == readFile(source)
                 ? Status()
                 : Status(Code::inputRejected, "another file");
    });
    if (path.empty() || round % 3 == 0)
      isGood = !cache.publish(key, source).empty() && isGood;
  }
  return isGood;
}

TEST_F(CacheTest, ManyProcessesShareIt) {
  std::string source = sourceFile(std::string(100000, 'k'));
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    pid_t child = fork();
    if (child == 0)
      _exit(hammer(folder, source, i) ? 0 : 1);
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(open().list().size(), 8u);
  size_t files = std::distance(fs::directory_iterator(folder), {});
  EXPECT_EQ(files, 8u) << "temporary files remain";
}

TEST_F(CacheTest, ListsAndClears) {
  Cache cache = open();
  EXPECT_EQ(cache.list().size(), 0u);
  cache.publish(keyOf(2), sourceFile("bb"));
  cache.publish(keyOf(1), sourceFile("a"));
  writeFile(folder + "/kiln_3.kiln.tmp-99-0", "left by a killed process");
  writeFile(folder + "/notes.txt", "not ours");
  writeFile(folder + "/kiln_thesis.kiln", "not ours");
  std::vector<Cache::Entry> entries = cache.list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].key, keyOf(1));
  EXPECT_EQ(entries[0].bytes, 65u);
  EXPECT_EQ(cache.clear(), 2u);
  size_t files = std::distance(fs::directory_iterator(folder), {});
  EXPECT_EQ(files, 2u) << "files of others must stay";
}

TEST_F(CacheTest, FolderComesFromTheEnvironment) {
  setenv("KILN_CACHE_DIR", "/x", 1);
  setenv("XDG_CACHE_HOME", "/y", 1);
  EXPECT_EQ(Cache::defaultFolder(), "/x");
  unsetenv("KILN_CACHE_DIR");
  EXPECT_EQ(Cache::defaultFolder(), "/y/kiln");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/z", 1);
  EXPECT_EQ(Cache::defaultFolder(), "/z/.cache/kiln");
}

TEST_F(CacheTest, KeyDependsOnEveryInput) {
  std::string library = scratch + "/library", model = scratch + "/m.mlir";
  writeFile(library, "one");
  writeFile(model, "one");
  auto keyOf = [&](const std::vector<std::string> &overrides, bool reference) {
    Diagnostics diagnostics;
    Config config =
        parseConfig(smallFileText, "a.yaml", overrides, diagnostics).value();
    std::string error;
    return compileKey(config, {library, reference}, error).value_or(error);
  };
  std::vector<std::string> base = {"model.path=" + model};
  std::string first = keyOf(base, false);
  EXPECT_EQ(first.size(), 5u + 64u);
  EXPECT_EQ(first, keyOf(base, false));
  EXPECT_NE(first, keyOf(base, true));
  setenv("KILN_RED_ZONES", "1", 1);
  EXPECT_NE(first, keyOf(base, false));
  unsetenv("KILN_RED_ZONES");
  EXPECT_NE(first, keyOf({base[0], "training.global_batch=3"}, false));
  // What no program depends on does not compile it again.
  for (const char *setting :
       {"training.steps=2", "training.seed=9",
        "training.optimizer.learning_rate=0.5", "training.schedule.warmup=3",
        "training.schedule={kind: cosine, steps: 9, minimum: 1e-5}",
        "data={kind: idx, path: x, labels: y}", "training.init=w.safetensors",
        "log.every=7", "checkpoint.every=3", "checkpoint=none",
        "evaluation=none"})
    EXPECT_EQ(first, keyOf({base[0], setting}, false)) << setting;
  EXPECT_NE(first, keyOf({base[0], "devices.threads=3"}, false));
  // Equal requests have equal keys; auto may resolve to another plan some day.
  EXPECT_EQ(first, keyOf({base[0], "devices.zero=auto"}, false));
  EXPECT_NE(first, keyOf({base[0], "devices.zero=0"}, false));
  writeFile(model, "two");
  std::string second = keyOf(base, false);
  EXPECT_NE(first, second);
  writeFile(library, "two");
  EXPECT_NE(second, keyOf(base, false));
  fs::remove(model);
  EXPECT_THAT(keyOf(base, false), HasSubstr("m.mlir: no such file"));
}

TEST(Sha256, KnownValue) {
  EXPECT_EQ(sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410"
            "ff61f20015ad");
}

} // namespace
} // namespace kiln::test
