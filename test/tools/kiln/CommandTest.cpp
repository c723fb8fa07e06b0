// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Config.h"
#include "test/runtime/SampleArtifact.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

/// A folder of its own with a config, a text, an artifact and a cache.
class CommandTest : public testing::Test {
protected:
  CommandTest() {
    char name[] = "/tmp/kiln-command-XXXXXX";
    folder = mkdtemp(name);
    setenv("KILN_CACHE_DIR", (folder / "cache").c_str(), 1);
    setenv("KILN_COMPILER_LIBRARY", KILN_STAND_IN, 1);
    setenv("STAND_IN", (folder / "sample").c_str(), 1);
    setenv("STAND_IN_STARTED", (folder / "started").c_str(), 1);
    writeFile(folder / "text", sampleText(1000));
    writeFile(folder / "a.yaml",
              "model: {kind: gpt, layers: 1, hidden: 8, heads: 2, sequence: 8, "
              "vocabulary: 256}\ntraining: {global_batch: 8, steps: 10}\n"
              "data: {kind: text, path: text}\n");
    Diagnostics diagnostics;
    artifact::IndexT index = sampleTraining((folder / "text").string(), 8, 8);
    Config config = loadConfig(folder / "a.yaml", {}, diagnostics).value();
    index.program = config.printProgram();
    index.settings->config = config.print();
    std::vector<std::byte> bytes = pack(index, kernels());
    writeFile(folder / "sample",
              {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  }
  ~CommandTest() override {
    std::error_code error;
    fs::remove_all(folder, error);
  }

  static const std::vector<std::byte> &kernels() {
    static const std::vector<std::byte> bytes = compileKernels(sampleKernels());
    return bytes;
  }

  /// Runs `kiln ARGUMENTS` in the folder through a shell.
  Outcome kiln(const std::string &arguments) {
    std::string line = "cd " + folder.string() + " && '" KILN_COMMAND "' " +
                       arguments + " >out 2>err </dev/null";
    int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            readFile(folder / "out"), readFile(folder / "err")};
  }

  /// Starts `kiln compile` on the hanging stand-in and waits until it hangs.
  pid_t startHanging(pid_t &compiler) {
    setenv("STAND_IN", "hang", 1);
    EXPECT_EQ(mkfifo((folder / "started").c_str(), 0600), 0);
    pid_t command = fork();
    if (command == 0) {
      if (chdir(folder.c_str()) != 0)
        _exit(99);
      execl(KILN_COMMAND, "kiln", "compile", "a.yaml", "-o", "m.kiln", nullptr);
      _exit(99);
    }
    // Blocks until the stand-in has opened the other end and closed it.
    compiler = std::stoi(readFile(folder / "started"));
    return command;
  }

  /// Files in the folder, hidden ones included, except those that a test put
  /// there.
  std::vector<std::string> leftovers() {
    std::vector<std::string> names;
    for (const auto &file : fs::directory_iterator(folder)) {
      std::string name = file.path().filename().string();
      if (name.find(".tmp-") != name.npos || name == "m.kiln")
        names.push_back(name);
    }
    return names;
  }

  fs::path folder;
};

// A compiler that was called would die, with another code.
TEST_F(CommandTest, FilesAreCheckedBeforeCompiling) {
  setenv("STAND_IN", "abort", 1);
  writeFile(folder / "brief", "a");
  auto expectRejected = [&](const std::string &arguments,
                            const std::string &message) {
    for (const char *verb : {"train a.yaml ", "verify a.yaml "}) {
      Outcome outcome = kiln(verb + arguments);
      EXPECT_EQ(outcome.code, 4) << arguments << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(message));
    }
  };
  expectRejected("data.path=nothing", "nothing: No such file");
  expectRejected("data.path=brief", "brief: has 1 tokens");
  expectRejected("evaluation.path=brief", "brief: has 1 tokens");
  expectRejected("training.init=nothing", "nothing: no such file");
  expectRejected("training.init=brief", "a safetensors file has at least 8");
  for (const char *output :
       {"--run-folder text/x", "--losses nothing/x", "--trace nothing/x"})
    EXPECT_EQ(kiln(std::string("train a.yaml ") + output).code, 5);
  // Without a state to save, a run can do without the folder.
  EXPECT_EQ(kiln("train a.yaml --run-folder text/x checkpoint=none").code, 70);
  // They may be on the machine that the artifact runs on.
  EXPECT_EQ(kiln("compile a.yaml data.path=nothing -o m.kiln").code, 70);
}

// With a checkpoint to go on from, weights are not read.
TEST_F(CommandTest, InitialWeightsMayBeGoneOnceThereIsACheckpoint) {
  setenv("STAND_IN", "abort", 1);
  std::string gone = " checkpoint.every=1 training.init=nothing";
  fs::create_directories(folder / "runs/a/checkpoints/step-000003");
  writeFile(folder / "runs/a/checkpoints/step-000003/kiln.json", "");
  EXPECT_EQ(kiln("train a.yaml" + gone).code, 70);
  EXPECT_EQ(kiln("train a.yaml --resume=none" + gone).code, 4);
  EXPECT_EQ(kiln("train a.yaml --run-folder b" + gone).code, 4);
}

TEST_F(CommandTest, UsageErrorsAreCode2WithASuggestion) {
  EXPECT_EQ(kiln("").code, 2);
  Outcome verb = kiln("trian a.yaml");
  EXPECT_EQ(verb.code, 2);
  EXPECT_THAT(verb.err, HasSubstr("did you mean 'train'?"));
  Outcome option = kiln("run m.kiln --porfile");
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.err, HasSubstr("did you mean '--profile'?"));
  EXPECT_EQ(kiln("compile a.yaml").code, 2);
  EXPECT_EQ(kiln("run m.kiln --steps abc").code, 2);
  EXPECT_EQ(kiln("cache cler").code, 2);
  EXPECT_EQ(kiln("help confg").code, 2);
}

TEST_F(CommandTest, HelpFitsATerminal) {
  Outcome help = kiln("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 24);
  EXPECT_EQ(kiln("--version").code, 0);
  for (const char *verb : {"train", "compile", "run", "inspect", "cache"})
    EXPECT_THAT(kiln(std::string(verb) + " --help").out, HasSubstr("kiln"));
  for (const char *topic : {"config", "env", "exit-codes"})
    EXPECT_EQ(kiln(std::string("help ") + topic).code, 0);
}

TEST_F(CommandTest, ConfigErrorsAreCode2AndAllReported) {
  Outcome outcome = kiln("train a.yaml model.heads=3 training.stepz=1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("does not divide"));
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'training.steps'?"));
  EXPECT_EQ(kiln("train nowhere.yaml").code, 2);
}

TEST_F(CommandTest, SecondCompileIsAHitWithTheSameBytes) {
  Outcome first = kiln("compile a.yaml -o m.kiln");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("Compile hash is: kiln_"));
  EXPECT_THAT(first.out, Not(HasSubstr("Cache hit")));
  EXPECT_THAT(first.out, HasSubstr("Peak memory: "));
  // A hit needs no compiler.
  setenv("STAND_IN", "abort", 1);
  Outcome second = kiln("compile a.yaml -o n.kiln");
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("Cache hit: "));
  EXPECT_EQ(readFile(folder / "m.kiln"), readFile(folder / "n.kiln"));
  EXPECT_EQ(readFile(folder / "m.kiln"), readFile(folder / "sample"));
  EXPECT_THAT(kiln("cache").out, HasSubstr("1 artifacts"));
  EXPECT_EQ(kiln("compile a.yaml -o n.kiln --no-cache").code, 70);
  EXPECT_EQ(kiln("compile a.yaml -o n.kiln --reference").code, 70);
  EXPECT_THAT(kiln("cache clear").out, HasSubstr("1 artifacts and"));
}

TEST_F(CommandTest, CorruptCacheEntryIsCompiledAgain) {
  ASSERT_EQ(kiln("compile a.yaml -o m.kiln").code, 0);
  for (const auto &entry : fs::directory_iterator(folder / "cache"))
    fs::resize_file(entry.path(), 5000);
  Outcome outcome = kiln("compile a.yaml -o m.kiln");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  EXPECT_THAT(outcome.err, HasSubstr("warning: corrupt cache entry"));
  EXPECT_THAT(kiln("compile a.yaml -o m.kiln").out, HasSubstr("Cache hit"));
}

// The artifact of one config under the hash of another: it is intact.
TEST_F(CommandTest, CacheEntryOfAnotherConfigIsCompiledAgain) {
  ASSERT_EQ(kiln("compile a.yaml -o m.kiln").code, 0);
  fs::path entry = fs::directory_iterator(folder / "cache")->path();
  artifact::IndexT other = sampleTraining((folder / "text").string(), 8, 8);
  other.program = "model: {kind: gpt}\n";
  std::vector<std::byte> bytes = pack(other, kernels());
  writeFile(entry,
            {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  Outcome outcome = kiln("compile a.yaml -o n.kiln");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("holds another program"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("Cache hit")));
  EXPECT_EQ(readFile(folder / "m.kiln"), readFile(folder / "n.kiln"));
  EXPECT_THAT(kiln("compile a.yaml -o n.kiln").out, HasSubstr("Cache hit"));
}

TEST_F(CommandTest, UnusableCacheIsAWarning) {
  writeFile(folder / "cache", "not a folder");
  Outcome outcome = kiln("compile a.yaml -o m.kiln");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  EXPECT_TRUE(fs::exists(folder / "m.kiln"));
}

TEST_F(CommandTest, CrashIsCode70WithAReproducer) {
  setenv("STAND_IN", "abort", 1);
  Outcome outcome = kiln("compile a.yaml training.seed=5 -o m.kiln");
  EXPECT_EQ(outcome.code, 70);
  EXPECT_TRUE(leftovers().empty());
  std::string reproducer;
  for (const auto &file : fs::directory_iterator(folder / "crash"))
    reproducer = file.path().string();
  EXPECT_THAT(readFile(reproducer), HasSubstr("seed: 5"));
  // Run again, it is not written over.
  writeFile(reproducer, readFile(reproducer) + "# by hand\n");
  EXPECT_EQ(kiln("compile " + reproducer + " -o m.kiln").code, 70);
  EXPECT_THAT(readFile(reproducer), HasSubstr("# by hand"));
  // The reproducer means the same when run from its own folder.
  setenv("STAND_IN", (folder / "sample").c_str(), 1);
  Outcome again = kiln("train " + reproducer);
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(CommandTest, FailureLeavesNoFile) {
  for (int code : {2, 3, 4, 5}) {
    setenv("STAND_IN", ("exit " + std::to_string(code)).c_str(), 1);
    EXPECT_EQ(kiln("compile a.yaml -o m.kiln").code, code);
    EXPECT_TRUE(leftovers().empty());
  }
  EXPECT_EQ(kiln("cache").out.substr(0, 11), "0 artifacts");
}

TEST_F(CommandTest, UnwritableOutputIsCode5) {
  EXPECT_EQ(kiln("compile a.yaml -o nowhere/m.kiln").code, 5);
  ASSERT_EQ(kiln("compile a.yaml -o m.kiln").code, 0);
  EXPECT_EQ(kiln("compile a.yaml -o nowhere/m.kiln").code, 5) << "from cache";
  EXPECT_EQ(kiln("compile a.yaml -o cache").code, 5) << "a folder";
}

TEST_F(CommandTest, FullDiskIsCode5) {
  setenv("STAND_IN", (folder / "sample").c_str(), 1);
  ASSERT_EQ(kiln("compile a.yaml -o m.kiln").code, 0);
  fs::remove(folder / "m.kiln");
  // A limit on the size of files fails writes as a full disk does.
  std::string line = "cd " + folder.string() +
                     " && trap '' XFSZ && ulimit -f 4 && '" KILN_COMMAND
                     "' compile a.yaml -o m.kiln >/dev/null 2>&1";
  int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 5);
  EXPECT_TRUE(leftovers().empty());
}

TEST_F(CommandTest, InterruptEndsTheCompiler) {
  for (int signal : {SIGINT, SIGTERM}) {
    pid_t compiler = 0;
    pid_t command = startHanging(compiler);
    kill(command, signal);
    int status = 0;
    waitpid(command, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_NE(kill(compiler, 0), 0) << "the compiler lives on";
    EXPECT_TRUE(leftovers().empty());
    fs::remove(folder / "started");
  }
}

TEST_F(CommandTest, TrainRunsWhatItCompiled) {
  Outcome outcome = kiln("train a.yaml --losses losses --profile");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("| Train Device=cpu:1, Step=10, Loss="));
  EXPECT_THAT(outcome.out, HasSubstr("GFLOP/s"));
  std::string losses = readFile(folder / "losses");
  EXPECT_EQ(std::count(losses.begin(), losses.end(), '\n'), 10);
  EXPECT_THAT(kiln("train a.yaml").out, HasSubstr("Cache hit"));
}

TEST_F(CommandTest, RunTakesSteps) {
  Outcome outcome = kiln("run sample --steps 3");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Trained 3 steps"));
}

// Not in octal.
TEST_F(CommandTest, NumbersAreDecimal) {
  EXPECT_THAT(kiln("run sample --steps 010").out, HasSubstr("Trained 10 "));
  EXPECT_THAT(kiln("run sample training.steps=010").out,
              HasSubstr("Trained 10 "));
}

// In whatever way it is given.
TEST_F(CommandTest, ACosineEndsWithTheRun) {
  std::string cosine = "run sample 'training.schedule={kind: cosine}' ";
  for (const char *length : {"--steps 20", "training.steps=20"}) {
    ASSERT_EQ(kiln(cosine + length + " --fresh").code, 0);
    EXPECT_THAT(
        readFile(folder / "runs/sample/config.yaml"),
        AllOf(HasSubstr("\n  steps: 20\n"), HasSubstr("\n    steps: 20\n")));
  }
  Outcome again = kiln(cosine + "--steps 20 --resume=auto");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("nothing is left to do"),
                               Not(HasSubstr("another config"))));
}

TEST_F(CommandTest, NamesAreAnyBytes) {
  fs::copy_file(folder / "a.yaml", folder / "-x.yaml");
  EXPECT_EQ(kiln("compile -o m.kiln -- -x.yaml log.every=2").code, 0);
  EXPECT_THAT(kiln("run \"$(printf 'n\\377')\"").err,
              HasSubstr("kiln: error: n\\xff: "));
}

TEST_F(CommandTest, ExplicitAutoGoesOn) {
  kiln("run sample --steps 3");
  EXPECT_THAT(
      kiln("run sample --steps 5 --resume=auto").out,
      AllOf(HasSubstr("Resumed from runs/sample/checkpoints/step-000003"),
            HasSubstr("Trained 2 steps")));
  EXPECT_THAT(kiln("run sample --steps 5").out,
              HasSubstr("The earlier run is now in runs/sample.1"));
}

// Standard output in the run's folder is made by the shell, and no file of
// somebody else's.
TEST_F(CommandTest, ALogMayBeInTheRunFolder) {
  fs::create_directory(folder / "r");
  std::string line = "cd " + folder.string() +
                     " && '" KILN_COMMAND
                     "' run sample --run-folder r > r/log 2>&1";
  EXPECT_EQ(std::system(line.c_str()), 0) << readFile(folder / "r/log");
  EXPECT_THAT(readFile(folder / "r/log"), HasSubstr("Trained 10 steps"));
  EXPECT_TRUE(fs::exists(folder / "r/metrics.jsonl"));
}

TEST_F(CommandTest, BadArtifactsAreCode4) {
  EXPECT_EQ(kiln("run a.yaml").code, 4);
  EXPECT_EQ(kiln("run nowhere.kiln").code, 4);
  fs::resize_file(folder / "sample", 5000);
  EXPECT_EQ(kiln("run sample").code, 4);
  EXPECT_EQ(kiln("inspect sample").code, 4);
}

TEST_F(CommandTest, InspectShowsPlanMemoryKernelsAndVariables) {
  Outcome text = kiln("inspect sample");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char *word : {"batch     8 samples", "precision f32\n",
                           "peak (reserved)", "kernel", "weight"})
    EXPECT_THAT(text.out, HasSubstr(word));
  Outcome json = kiln("inspect sample --json");
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"arena_bytes\""));
}

TEST_F(CommandTest, LinksNoCompiler) {
  std::string line =
      "ldd '" KILN_COMMAND "' > " + (folder / "libraries").string();
  ASSERT_EQ(std::system(line.c_str()), 0);
  std::string libraries = readFile(folder / "libraries");
  EXPECT_THAT(libraries, HasSubstr("libc.so"));
  EXPECT_THAT(libraries, Not(HasSubstr("LLVM")));
  EXPECT_THAT(libraries, Not(HasSubstr("MLIR")));
}

} // namespace
} // namespace kiln::test
