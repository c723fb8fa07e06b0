// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files that a run leaves behind, and how the next one begins from them.
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "runtime/metrics/MetricsFile.h"
#include "runtime/session/RunFolder.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kiln::test {

namespace fs = std::filesystem;
using namespace artifact;
using Json = nlohmann::json;

class RunTest : public testing::Test {
protected:
  RunTest() {
    writeFile(folder / "text", sampleText(1000));
    index = sampleTraining(folder / "text", 8, 8);
    image(index).variables[0]->role = "parameter";
    index.settings->checkpoint = std::make_unique<CheckpointPolicyT>();
    index.settings->checkpoint->every = 4;
    index.settings->checkpoint->keep = 3;
    options.runFolder = folder / "run";
    options.isInitialising = true;
    options.lossesPath = folder / "losses";
    options.warn = [this](const std::string &warning) {
      warnings.push_back(warning);
    };
  }

  struct Result {
    Status status;
    TrainReport report;
    std::string log, losses;
    float weight;
  };

  /// `bytes` limits the size of files, once the code is loaded.
  Result train(rlim_t bytes = RLIM_INFINITY) {
    static const std::vector<std::byte> kernels =
        compileKernels(sampleKernels());
    Session session = openSession(index, kernels);
    writeFile(folder / "log", "");
    options.logFile = ::open((folder / "log").c_str(), O_WRONLY);
    warnings.clear();
    Result result;
    struct rlimit before, limit;
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = std::min(bytes, before.rlim_cur);
    auto *handler = std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    result.status = session.train(options, &result.report);
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    ::close(options.logFile);
    result.log = readFile(folder / "log");
    result.losses = readFile(folder / "losses");
    (void)session.readVariable(
        "weight", std::as_writable_bytes(std::span(&result.weight, 1)));
    return result;
  }

  std::vector<uint64_t> savedSteps() {
    std::vector<uint64_t> steps;
    Expected<CheckpointStore::Entries> saved =
        CheckpointStore(folder / "run/checkpoints").list();
    for (const auto &entry : *saved)
      steps.push_back(entry.step);
    return steps;
  }

  /// The metrics, one object for each line.
  std::vector<Json> metrics() {
    std::vector<Json> lines;
    std::istringstream text(readFile(folder / "run/metrics.jsonl"));
    for (std::string line; std::getline(text, line);)
      lines.push_back(Json::parse(line));
    return lines;
  }

  TemporaryFolder folder;
  IndexT index;
  TrainOptions options;
  std::vector<std::string> warnings;
};

TEST_F(RunTest, SavesAtTheStartAtIntervalsAndAtTheEnd) {
  Result run = train();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{4, 8, 10}));
  EXPECT_NE(run.log.find("No checkpoint found in " +
                         (folder / "run/checkpoints") +
                         ": starting from step 0\n"),
            std::string::npos);
  index.settings->checkpoint->keep = 10;
  options.resume = "none";
  ASSERT_TRUE(train().status.ok());
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{0, 4, 8, 10}));
  EXPECT_EQ(readFile(folder / "run/config.yaml"), index.settings->config);
  // The earlier run was not overwritten.
  EXPECT_TRUE(fs::exists(folder / "run.1/checkpoints/step-000010"));
}

TEST_F(RunTest, GoesOnExactlyWhereItStopped) {
  Result whole = train();
  std::vector<Json> wantedMetrics = metrics();
  ASSERT_EQ(wantedMetrics.size(), 10u);
  fs::remove_all(folder / "run");
  index.settings->training->steps = 6;
  Result first = train();
  index.settings->training->steps = 10;
  // Stands for a kill between the checkpoint and the last line.
  writeFile(folder / "run/metrics.jsonl",
            readFile(folder / "run/metrics.jsonl") +
                "{\"step\": 7, \"loss\": 1}\n{\"step\": 8, \"lo");
  Result second = train();
  ASSERT_TRUE(second.status.ok()) << second.status.message();
  EXPECT_NE(second.log.find("Resumed from " +
                            (folder / "run/checkpoints/step-000006") +
                            ": step 6"),
            std::string::npos)
      << second.log;
  EXPECT_EQ(first.losses + second.losses, whole.losses);
  EXPECT_EQ(second.weight, whole.weight);
  EXPECT_EQ(second.report.firstStep, 6u);
  std::vector<Json> found = metrics();
  ASSERT_EQ(found.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(found[i]["step"], i + 1);
    EXPECT_EQ(found[i]["loss_hex"], wantedMetrics[i]["loss_hex"]);
  }
  Result third = train();
  EXPECT_TRUE(third.status.ok());
  EXPECT_EQ(third.losses, "");
  EXPECT_NE(third.log.find("nothing is left to do"), std::string::npos);
}

// Else a sweep over learning rates would train once and then do nothing.
TEST_F(RunTest, AFinishedRunWithAnotherConfigFails) {
  index.settings->config =
      "model:\n  kind: gpt\ntraining:\n  steps: 10\n  optimizer:\n"
      "    learning_rate: 0.001\n    momentum: 0\nlog:\n  every: 1\n";
  ASSERT_TRUE(train().status.ok());
  std::string metrics = readFile(folder / "run/metrics.jsonl");
  std::string before = std::exchange(
      index.settings->config,
      "model:\n  kind: gpt\ntraining:\n  steps: 10\n  optimizer:\n"
      "    learning_rate: 0.01\nlog:\n  every: 1\ncheckpoint:\n  keep: 3\n");
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 2);
  EXPECT_EQ(run.status.message(),
            (folder / "run/checkpoints/step-000010") +
                ": step 10 of 10 is done, with another config:"
                "\n  checkpoint.keep was absent, is 3"
                "\n  training.optimizer.learning_rate was 0.001, is 0.01"
                "\n  training.optimizer.momentum was 0, is absent"
                "\n--run-folder FOLDER keeps another run beside this one, "
                "--fresh sets this one aside and starts at step 0, more steps "
                "go on from here with the changed keys");
  EXPECT_EQ(run.report.steps, 0u);
  EXPECT_EQ(readFile(folder / "run/config.yaml"), before);
  EXPECT_EQ(readFile(folder / "run/metrics.jsonl"), metrics);
  index.settings->training->steps = 12;
  run = train();
  EXPECT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_NE(run.log.find(": step 10, with another config:\n"
                         "  checkpoint.keep was absent, is 3\n"),
            std::string::npos)
      << run.log;
  EXPECT_EQ(run.losses.substr(0, 3), "11 ");
}

TEST_F(RunTest, ADamagedCheckpointIsPassedOver) {
  Result whole = train();
  std::string path = folder / "run/checkpoints/step-000010/model.safetensors";
  std::string bytes = readFile(path);
  bytes.back() ^= 1;
  writeFile(path, bytes);
  options.resume = folder / "run/checkpoints/step-000010";
  EXPECT_EQ(train().status.exitCode(), 4);
  options.resume = "auto";
  Result run = train();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("step-000010/model.safetensors: is damaged"),
            std::string::npos);
  EXPECT_EQ(run.losses.substr(0, 2), "9 ");
  EXPECT_EQ(run.weight, whole.weight);
  EXPECT_EQ(metrics().size(), 10u);
  // It was replaced.
  EXPECT_TRUE(Checkpoint::open(folder / "run/checkpoints/step-000010").ok());
}

TEST_F(RunTest, ACheckpointThatCannotBeReadIsNotPassedOver) {
  ASSERT_TRUE(train().status.ok());
  std::string path = folder / "run/checkpoints/step-000010/model.safetensors";
  fs::rename(path, folder / "model");
  fs::create_symlink(folder / "model", path); // Is not followed.
  index.settings->training->steps = 12;
  for (const char *resume : {"", "auto", "run"}) {
    options.resume = resume == std::string("run") ? folder / "run" : resume;
    Result run = train();
    EXPECT_EQ(run.status.exitCode(), 5) << resume;
    EXPECT_TRUE(run.status.message().starts_with(path + ": cannot read: "))
        << run.status.message();
  }
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{4, 8, 10}));
  options.resume = folder / "run/checkpoints/step-000008";
  EXPECT_TRUE(train().status.ok());
}

TEST_F(RunTest, GoesBackToANamedCheckpoint) {
  Result whole = train();
  options.resume = folder / "run/checkpoints/step-000004";
  Result run = train();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.losses.substr(0, 2), "5 ");
  EXPECT_EQ(run.weight, whole.weight);
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/step-000010.old"));
  EXPECT_NE(run.log.find("2 later checkpoints renamed to *.old, 6 later lines "
                         "of metrics moved to " +
                         (folder / "run/metrics.jsonl.old")),
            std::string::npos)
      << run.log;
  // From another run's folder: that run stays as it is.
  options.runFolder = folder / "other";
  ASSERT_TRUE(train().status.ok());
  EXPECT_EQ(readFile(folder / "other/metrics.jsonl").substr(0, 12),
            "{\"step\": 5, ");
  EXPECT_EQ(metrics().size(), 10u);
}

// Every course stays, with its metrics.
TEST_F(RunTest, GoesBackMoreThanOnce) {
  ASSERT_TRUE(train().status.ok());
  std::string first = readFile(folder / "run/metrics.jsonl");
  options.resume = folder / "run/checkpoints/step-000004";
  for (const char *mark : {".old", ".old.2"}) {
    Result run = train();
    ASSERT_TRUE(run.status.ok()) << run.status.message();
    for (const char *step : {"step-000008", "step-000010"})
      EXPECT_TRUE(Checkpoint::open(
                      folder / ("run/checkpoints/" + std::string(step) + mark))
                      .ok());
    std::string cut =
        readFile(folder / ("run/metrics.jsonl" + std::string(mark)));
    EXPECT_TRUE(cut.starts_with("{\"step\": 5, "));
    EXPECT_EQ(std::count(cut.begin(), cut.end(), '\n'), 6);
    EXPECT_EQ(metrics().size(), 10u);
  }
  EXPECT_TRUE(first.ends_with(readFile(folder / "run/metrics.jsonl.old")));
}

// Without a change the same lines will be written again.
TEST_F(RunTest, LinesThatAnotherConfigWillNotRepeatStay) {
  index.settings->training->steps = 6;
  std::string rates[] = {"rate: 1\n", "rate: 2\n"};
  for (const std::string &rate : rates) {
    index.settings->config = rate;
    ASSERT_TRUE(train().status.ok());
    index.settings->training->steps += 2;
    // Stands for a kill after the step that follows the last checkpoint.
    writeFile(folder / "run/metrics.jsonl",
              readFile(folder / "run/metrics.jsonl") +
                  "{\"step\": 9, \"loss\": 1}\n{\"st");
  }
  EXPECT_EQ(readFile(folder / "run/metrics.jsonl.old"),
            "{\"step\": 9, \"loss\": 1}\n");
  ASSERT_TRUE(train().status.ok());
  EXPECT_FALSE(fs::exists(folder / "run/metrics.jsonl.old.2"));
  EXPECT_EQ(metrics().size(), 10u);
}

// A misspelt path must not cost an earlier run its name.
TEST_F(RunTest, OutputsAreCheckedBeforeAnEarlierRunIsTouched) {
  ASSERT_TRUE(train().status.ok());
  options.resume = "none";
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  auto expectFailure = [&](const std::string &path, Code code,
                           const std::string &message) {
    options.lossesPath = path;
    Result run = train();
    EXPECT_EQ(run.status.code(), code);
    EXPECT_NE(run.status.message().find(message), std::string::npos)
        << run.status.message();
    EXPECT_FALSE(fs::exists(folder / "run.1"));
    EXPECT_EQ(metrics().size(), 10u);
  };
  expectFailure(folder / "nowhere/losses", Code::io,
                "file of losses " + (folder / "nowhere/losses") +
                    ": cannot open: No such file or directory");
  expectFailure(folder.path(), Code::io, "Is a directory");
  expectFailure(folder / "fifo", Code::usage, "is a FIFO, wanted a file");
  fs::create_directory(folder / "run/deep");
  expectFailure(folder / "run/deep/losses", Code::usage,
                "its folder would be set aside with the earlier run");
  std::string config = readFile(folder / "run/config.yaml");
  options.resume = "";
  index.settings->training->steps = 12;
  index.settings->config = "{steps: 12}";
  expectFailure(folder / "nowhere/losses", Code::io, "cannot open");
  EXPECT_EQ(readFile(folder / "run/config.yaml"), config);
  options.runFolder = folder / "fresh";
  expectFailure(folder / "nowhere/losses", Code::io, "cannot open");
  EXPECT_FALSE(fs::exists(folder / "fresh"));
  options.runFolder = folder / "run";
  options.resume = "none";
  options.lossesPath = folder / "run/losses";
  EXPECT_TRUE(train().status.ok());
  EXPECT_EQ(std::count_if(fs::directory_iterator(folder / "run"), {},
                          [](const fs::directory_entry &entry) {
                            return entry.path().filename() == "losses";
                          }),
            1);
}

// They would move with it: the config would name files that are not there.
TEST_F(RunTest, AnEarlierRunWithFilesOfThisOneIsNotSetAside) {
  ASSERT_TRUE(train().status.ok());
  fs::rename(folder / "text", folder / "run/text");
  index.settings->data->path = folder / "run/text";
  options.resume = "none";
  auto expectRefused = [&](const std::string &message) {
    Result run = train();
    EXPECT_EQ(run.status.code(), Code::usage);
    EXPECT_EQ(run.status.message(),
              "run folder " + (folder / "run") +
                  ": the run there would get another name, but it holds " +
                  message +
                  "; move that elsewhere, or give another --run-folder");
    EXPECT_FALSE(fs::exists(folder / "run.1"));
  };
  expectRefused("data.path " + (folder / "run/text"));
  fs::rename(folder / "run/text", folder / "text");
  index.settings->data->path = folder / "text";
  options.inputs["artifact"] = folder / "run/checkpoints/../a.kiln";
  writeFile(folder / "run/a.kiln", "");
  expectRefused("artifact " + (folder / "run/checkpoints/../a.kiln"));
  // To go on there moves nothing.
  options.resume = "";
  index.settings->training->steps = 12;
  EXPECT_TRUE(train().status.ok());
}

TEST_F(RunTest, ARunFolderThatCannotBeWrittenIsRefusedAtOnce) {
  fs::create_directory(folder / "run");
  fs::create_directory(folder / "other");
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(folder / "run", fs::perms(0555));
  pid_t child = ::fork();
  if (child == 0) { // As a user whom permissions bind.
    if (::geteuid() == 0 && ::setuid(65534) != 0)
      ::_exit(2);
    Expected<RunFolder> run = RunFolder::open(folder / "run");
    ::_exit(run.ok() && run->checkWritable().code() == Code::io ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  fs::permissions(folder / "run", fs::perms(0755));
  EXPECT_TRUE(RunFolder::open(folder / "run")->checkWritable().ok());
}

// The result would be lost, which is known before the first step.
TEST_F(RunTest, AFullDiskAtTheStartIsRefusedAtOnce) {
  ASSERT_TRUE(train().status.ok());
  fs::remove(folder / "run/config.yaml");
  fs::create_directories(folder / "run/config.yaml/mine");
  index.settings->training->steps = 12;
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 5);
  EXPECT_NE(run.status.message().find("config.yaml: cannot "),
            std::string::npos)
      << run.status.message();
  EXPECT_NE(run.status.message().find("--no-run-folder keeps nothing"),
            std::string::npos);
  EXPECT_EQ(run.report.seconds, 0);
  // If nothing is left to do, nothing is lost.
  index.settings->training->steps = 10;
  EXPECT_TRUE(train().status.ok());
  EXPECT_EQ(warnings.size(), 1u);
  Expected<RunFolder> opened = RunFolder::open(folder / "run");
  EXPECT_TRUE(opened->checkRoom(1).ok());
  Status status = opened->checkRoom(uint64_t{1} << 62);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_TRUE(status.message().starts_with(
      "run folder " + (folder / "run") +
      ": one state of this run needs 4611686018427387904 bytes, and "))
      << status.message();
}

TEST_F(RunTest, ExplicitAutoGoesOnWithoutAPolicy) {
  index.settings->checkpoint.reset();
  options.resume = "auto";
  Result first = train();
  EXPECT_NE(first.log.find(": starting from step 0"), std::string::npos);
  index.settings->training->steps = 12;
  Result second = train();
  EXPECT_EQ(second.losses.substr(0, 3), "11 ");
  EXPECT_FALSE(fs::exists(folder / "run.1"));
  options.runFolder = "";
  EXPECT_EQ(train().losses.substr(0, 2), "1 ");
}

// Temporary files that a kill has left, and nothing else.
TEST_F(RunTest, RemainsOfAKilledRunAreRemoved) {
  ASSERT_TRUE(train().status.ok());
  const char *mine[] = {"config.yaml.tmp-mine", "notes.tmp-1-0",
                        "report-step-x.json.tmp-1"};
  for (const char *name : mine)
    writeFile(folder / ("run/" + std::string(name)), "mine");
  for (const char *name : {"config.yaml.tmp-1-0", "vocabulary.txt.tmp-77",
                           "report-step-4.json.tmp-1-3"})
    writeFile(folder / ("run/" + std::string(name)), "half");
  index.settings->training->steps = 12;
  ASSERT_TRUE(train().status.ok());
  for (const char *name : mine)
    EXPECT_TRUE(fs::exists(folder / ("run/" + std::string(name))));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "run"), {}),
            3 + 3); // Metrics, config and checkpoints.
}

TEST_F(RunTest, AFifoInThePlaceOfMetricsDoesNotBlock) {
  ASSERT_TRUE(train().status.ok());
  fs::remove(folder / "run/metrics.jsonl");
  ASSERT_EQ(::mkfifo((folder / "run/metrics.jsonl").c_str(), 0600), 0);
  index.settings->training->steps = 12;
  Result run = train();
  EXPECT_TRUE(run.status.ok()) << run.status.message();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], (folder / "run/metrics.jsonl") +
                             ": is no regular file; no metrics are kept");
}

// The rows of the weights still belong to the words.
TEST_F(RunTest, AVocabularyOfWeightsIsKeptByDataWithoutWords) {
  const std::string words = "[PAD]\n[UNK]\na\n";
  {
    Expected<OutputFile> file = OutputFile::create(folder / "w");
    float value = 1;
    ASSERT_TRUE(writeSafetensors(*file,
                                 {{{"weight", "F32", {}},
                                   [&](OutputFile &target) {
                                     return target.write(
                                         std::as_bytes(std::span(&value, 1)));
                                   }}},
                                 describeWeights(words))
                    .ok());
    ASSERT_TRUE(file->finish().ok());
  }
  index.settings->training->init = folder / "w";
  ASSERT_TRUE(train().status.ok());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("w: its vocabulary (SHA-256 " + sha256(words)),
            std::string::npos)
      << warnings[0];
  writeFile(folder / "w.vocabulary.txt", words);
  options.resume = "none";
  ASSERT_TRUE(train().status.ok());
  EXPECT_EQ(warnings.size(), 0u);
  EXPECT_EQ(readFile(folder / "run/vocabulary.txt"), words);
  options.resume = "";
  index.settings->training->steps = 12;
  ASSERT_TRUE(train().status.ok());
  EXPECT_EQ(readFile(folder / "run/checkpoints/step-000012/vocabulary.txt"),
            words);
}

/// Changes the data while a run is on its way.
class ChangedDataTest : public RunTest {
protected:
  ChangedDataTest() {
    index.settings->training->steps = uint64_t{1} << 40;
    index.settings->checkpoint->every = 0;
  }

  Result trainWhile(const std::function<void()> &change) {
    writeFile(folder / "losses", "");
    setAge(1); // Clocks of file systems are coarse.
    std::thread thread([&] {
      while (readFile(folder / "losses").empty())
        std::this_thread::yield();
      change();
    });
    Result run = train();
    thread.join();
    return run;
  }
  void setAge(int hours) const {
    fs::last_write_time(folder / "text", fs::file_time_type::clock::now() -
                                             std::chrono::hours(hours));
  }
  void overwrite(const std::string &text) const {
    std::fstream file(folder / "text", std::ios::in | std::ios::out);
    file << text;
  }
};

TEST_F(ChangedDataTest, OtherBytesEndTheRunWithItsState) {
  Result run = trainWhile([&] { overwrite(std::string(1000, 'x')); });
  EXPECT_EQ(run.status.code(), Code::inputRejected);
  std::vector<uint64_t> saved = savedSteps();
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[1], run.report.steps);
  char name[64];
  std::snprintf(name, sizeof(name), "run/checkpoints/step-%06llu",
                static_cast<unsigned long long>(saved[1]));
  std::string path = folder / name;
  EXPECT_EQ(
      run.status.message(),
      "data file " + (folder / "text") +
          ": was written to; the file has changed since it was opened; "
          "the state after step " +
          std::to_string(saved[1]) + " is in " + path + ": --resume=" + path +
          " goes on from it with the file as it was, training.init=" + path +
          "/model.safetensors takes its weights to other data");
  // It is that of a run whose data never changed.
  overwrite(sampleText(1000));
  options.resume = path;
  index.settings->training->steps = saved[1] + 3;
  Result rest = train();
  ASSERT_TRUE(rest.status.ok()) << rest.status.message();
  options.runFolder = folder / "whole";
  options.resume = "none";
  Result whole = train();
  EXPECT_EQ(run.losses + rest.losses, whole.losses);
  EXPECT_EQ(rest.weight, whole.weight);
}

TEST_F(ChangedDataTest, TheMessageTellsThatNothingIsKept) {
  index.settings->checkpoint = std::make_unique<CheckpointPolicyT>();
  Result run = trainWhile([&] { overwrite(std::string(1000, 'x')); });
  EXPECT_EQ(run.status.code(), Code::inputRejected);
  EXPECT_TRUE(run.status.message().ends_with(
      "; the state after step " + std::to_string(run.report.steps) +
      " is lost, because it was not saved"))
      << run.status.message();
}

// Backups, editors and crawlers do this to files that are in use.
TEST_F(ChangedDataTest, TheSameBytesDoNotEndTheRun) {
  options.warn = [this](const std::string &warning) {
    warnings.push_back(warning);
    ::kill(::getpid(), SIGINT);
  };
  const std::function<void()> changes[] = {
      [&] { setAge(2); }, [&] { overwrite(sampleText(1000)); },
      [&] { std::ofstream(folder / "text", std::ios::app) << "more"; }};
  for (const std::function<void()> &change : changes) {
    writeFile(folder / "text", sampleText(1000));
    options.resume = "none";
    Result run = trainWhile(change);
    EXPECT_EQ(run.status.exitCode(), 75) << run.status.message();
    EXPECT_EQ(warnings, std::vector<std::string>{
                            "data file " + (folder / "text") +
                            ": was written to since it was opened; the bytes "
                            "that are used are the same, so the run goes on"});
  }
}

TEST_F(RunTest, ACheckpointOfAnotherModelIsRejectedWithAllDifferences) {
  ASSERT_TRUE(train().status.ok());
  addVariable(index, "more", ElementType::f32, {2}, 1024, InitKind::zeros);
  image(index).variables[0]->name = "mass";
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 4);
  for (const char *part : {"is of another model", "missing 'mass', F32 []",
                           "missing 'more', F32 [2]", "extra 'weight', F32 []"})
    EXPECT_NE(run.status.message().find(part), std::string::npos)
        << run.status.message();
  index = sampleTraining(folder / "text", 8, 8);
  image(index).variables[0]->element_type = ElementType::i32;
  index.settings->checkpoint = std::make_unique<CheckpointPolicyT>();
  index.settings->checkpoint->keep = 1;
  EXPECT_NE(train().status.message().find("'weight' is F32 [], wanted I32 []"),
            std::string::npos);
  index.settings->training->seed = 8;
  index.settings->data->shuffle = false;
  run = train();
  EXPECT_EQ(run.status.exitCode(), 4);
  for (const char *part :
       {"training.seed is 7, wanted 8", "data.shuffle is 1, wanted 0"})
    EXPECT_NE(run.status.message().find(part), std::string::npos)
        << run.status.message();
}

// It has as many samples, so no other difference gives it away.
TEST_F(RunTest, OtherDataAreRejected) {
  index.settings->training->steps = 6;
  ASSERT_TRUE(train().status.ok());
  std::string text = sampleText(1000);
  text[500] ^= 1;
  writeFile(folder / "text", text);
  index.settings->training->steps = 10;
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 4);
  EXPECT_EQ(run.status.message(),
            (folder / "run/checkpoints/step-000006") +
                ": is of another run:\n  the file of data.path has other "
                "contents\n--fresh starts afresh, training.init=" +
                (folder / "run/checkpoints/step-000006/model.safetensors") +
                " takes only the weights");
  // The path may change.
  writeFile(folder / "moved", sampleText(1000));
  index.settings->data->path = folder / "moved";
  run = train();
  EXPECT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_EQ(run.losses.substr(0, 2), "7 ");
}

// Ids of other data would be those of other words.
TEST_F(RunTest, StateOfAnotherVocabularyIsRejected) {
  index.settings->data->kind = "documents";
  index.settings->data->predictions = index.settings->data->sequence;
  index.settings->data->vocabulary = 100;
  writeFile(folder / "text", "a b.\na c.\n\na d.\nb d.\n");
  ASSERT_TRUE(train().status.ok());
  const std::string words =
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n.\na\nb\nd\nc\n";
  EXPECT_EQ(readFile(folder / "run/vocabulary.txt"), words);
  std::string last = folder / "run/checkpoints/step-000010/";
  EXPECT_EQ(readFile(last + "vocabulary.txt"), words);

  writeFile(folder / "text", "a b.\na e.\n\na d.\nb d.\n");
  options.resume = "none";
  fs::rename(folder / "run", folder / "first"); // Else it would be set aside.
  last = folder / "first/checkpoints/step-000010/";
  index.settings->training->init = last + "model.safetensors";
  Status status = train().status;
  EXPECT_EQ(status.code(), Code::inputRejected);
  EXPECT_NE(status.message().find("data.vocabulary=" + last +
                                  "vocabulary.txt takes the words"),
            std::string::npos)
      << status.message();
  index.settings->data->vocabulary_path = last + "vocabulary.txt";
  Result fitting = train();
  EXPECT_TRUE(fitting.status.ok()) << fitting.status.message();
  EXPECT_EQ(readFile(folder / "run/vocabulary.txt"), words);
}

TEST_F(RunTest, WithoutAPolicyTheLastStateIsKept) {
  index.settings->checkpoint.reset();
  Result first = train();
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{10}));
  std::string path = folder / "run/checkpoints/step-000010";
  EXPECT_NE(first.log.find("The state after step 10 is in " + path + "\n"),
            std::string::npos)
      << first.log;
  // Nobody asked to go on from it: the next run is one of its own.
  Result second = train();
  EXPECT_EQ(second.losses, first.losses);
  EXPECT_NE(second.log.find("The earlier run is now in " + (folder / "run.1")),
            std::string::npos)
      << second.log;
  EXPECT_TRUE(fs::exists(folder / "run.1/checkpoints/step-000010"));
  EXPECT_EQ(metrics().size(), 10u);
  // Asked for by the run's folder. Nothing is removed.
  index.settings->training->steps = 14;
  options.resume = folder / "run";
  Result third = train();
  ASSERT_TRUE(third.status.ok()) << third.status.message();
  EXPECT_EQ(third.losses.substr(0, 3), "11 ");
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{10, 14}));
  options.resume = folder / "nowhere";
  EXPECT_EQ(train().status.exitCode(), 4);
  // A run whose result could not be kept does not begin.
  options.resume = "auto";
  options.runFolder = "/proc/nowhere";
  Result fourth = train();
  EXPECT_EQ(fourth.status.exitCode(), 5);
  EXPECT_NE(fourth.status.message().find("--no-run-folder keeps nothing"),
            std::string::npos);
}

TEST_F(RunTest, APolicyThatKeepsNoneSavesNothing) {
  index.settings->checkpoint = std::make_unique<CheckpointPolicyT>();
  Result first = train();
  EXPECT_EQ(metrics().size(), 10u);
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints"));
  EXPECT_EQ(first.log.find("heckpoint"), std::string::npos);
  EXPECT_EQ(train().losses, first.losses);
  EXPECT_EQ(metrics().size(), 10u);
  // Metrics alone are not worth stopping for.
  options.runFolder = "/proc/nowhere";
  EXPECT_TRUE(train().status.ok());
  EXPECT_EQ(warnings.size(), 1u);
}

TEST_F(RunTest, AFullDiskDoesNotStopTraining) {
  index.settings->training->steps = 8;
  ASSERT_TRUE(train().status.ok());
  index.settings->training->steps = 24;
  options.lossesPath = "";
  // Less than the metrics have already. The config is smaller.
  Result run = train(300);
  EXPECT_EQ(run.report.steps, 24u);
  EXPECT_EQ(run.status.exitCode(), 5); // The result itself is not saved.
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{0, 4, 8}));
  size_t checkpoints = 0, others = 0;
  for (const std::string &warning : warnings) {
    bool isSave = warning.find("was not saved") != std::string::npos;
    ++(isSave ? checkpoints : others);
    if (isSave) {
      EXPECT_NE(warning.find("the last checkpoint is of step 8"),
                std::string::npos)
          << warning;
    }
  }
  EXPECT_EQ(checkpoints, 4u); // 12, 16, 20, 24
  EXPECT_EQ(others, 2u);      // metrics, log
  options.lossesPath = folder / "losses";
  Result again = train();
  EXPECT_TRUE(again.status.ok());
  EXPECT_EQ(again.losses.substr(0, 2), "9 ");
  EXPECT_EQ(metrics().size(), 24u);
}

// Half a line would be read as another loss.
TEST_F(RunTest, LossesOnAFullDiskEndWithALine) {
  options.runFolder = "";
  std::string whole = train().losses;
  Result run = train(whole.size() - 5);
  EXPECT_EQ(run.status.exitCode(), 5);
  EXPECT_EQ(run.losses,
            whole.substr(0, whole.rfind('\n', whole.size() - 2) + 1));
}

// The loss is that before the update, so it tells too late, or never.
TEST_F(RunTest, AStateThatIsNotFiniteIsNeverSaved) {
  // Grows by less than a percent a step, and no loss depends on it.
  addVariable(index, "table", ElementType::f32, {3}, 512, InitKind::constant,
              3.35e38);
  uint32_t follow = addKernel(index, {{"sample_follow", 3}});
  addLaunch(*image(index).programs[0], follow, {Place(128, 0), Place(512, 0)});
  index.settings->checkpoint->keep = 1;
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 8);
  EXPECT_EQ(run.status.message(),
            "the state after step 4 is not finite: 'table' is inf in element "
            "0; the last checkpoint is of step 0; its samples are in " +
                (folder / "run/report-step-4.json"));
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{0}));
  EXPECT_TRUE(Checkpoint::open(folder / "run/checkpoints/step-000000").ok());
  // Nor at the end, nor before the first step.
  index.settings->checkpoint.reset();
  EXPECT_EQ(train().status.exitCode(), 8);
  EXPECT_EQ(savedSteps(), std::vector<uint64_t>());
  index.settings->checkpoint = std::make_unique<CheckpointPolicyT>();
  index.settings->checkpoint->keep = 1;
  addVariable(index, "wide", ElementType::f64, {2}, 1024, InitKind::constant,
              -INFINITY);
  run = train();
  EXPECT_EQ(run.status.exitCode(), 8);
  EXPECT_EQ(run.status.message(),
            "the state after step 0 is not finite: 'wide' is -inf in element "
            "0; there is no earlier checkpoint");
}

TEST_F(RunTest, ReportsALossThatIsNotFinite) {
  index.settings->checkpoint.reset();
  image(index).variables[0]->init->kind = InitKind::constant;
  image(index).variables[0]->init->a = NAN;
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 8);
  std::string path = folder / "run/report-step-1.json";
  EXPECT_EQ(run.status.message(),
            "loss is nan at step 1; its samples are in " + path);
  Json report = Json::parse(readFile(path));
  EXPECT_EQ(report["step"], 1);
  EXPECT_TRUE(report["loss"].is_null());
  EXPECT_EQ(report["samples"].size(), 8u);
  EXPECT_TRUE(metrics().at(0)["loss"].is_null());
  EXPECT_EQ(savedSteps(), std::vector<uint64_t>());
}

TEST_F(RunTest, AGradientThatIsNotFiniteStopsToo) {
  // The weight stands for the norm: it is 1 at first and then moves.
  addOutput(*image(index).programs[0], "grad_norm", ElementType::f32, {}, 0);
  image(index).variables[0]->init->kind = InitKind::constant;
  image(index).variables[0]->init->a = 1e38;
  writeFile(folder / "text", std::string(1000, 'a'));
  Result run = train();
  EXPECT_EQ(run.status.exitCode(), 8);
  image(index).variables[0]->init->a = 1;
  options.resume = "none";
  run = train();
  EXPECT_TRUE(run.status.ok()) << run.status.message();
  EXPECT_GT(metrics().at(0)["grad_norm"].get<double>(), 1);
}

TEST_F(RunTest, ASignalSavesAndTellsSo) {
  index.settings->training->steps = uint64_t{1} << 40;
  index.settings->checkpoint->every = 0;
  auto trainUntilSignal = [&] {
    writeFile(folder / "losses", "");
    std::thread killer([&] {
      while (readFile(folder / "losses").empty())
        std::this_thread::yield();
      ::kill(::getpid(), SIGINT);
    });
    Result run = train();
    killer.join();
    EXPECT_EQ(run.status.exitCode(), 75);
    return run;
  };
  Result run = trainUntilSignal();
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{0, run.report.steps}));
  EXPECT_NE(run.status.message().find("the same command goes on from it"),
            std::string::npos);
  index.settings->checkpoint.reset();
  run = trainUntilSignal();
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{run.report.steps}));
  EXPECT_NE(run.status.message().find("the same command with --resume=" +
                                      (folder / "run") + " goes on from it"),
            std::string::npos)
      << run.status.message();
}

// GNU timeout sends each signal twice, and the second may come at any moment.
TEST_F(RunTest, ASignalThatRepeatsIsOneRequest) {
  index.settings->training->steps = uint64_t{1} << 40;
  index.settings->checkpoint.reset();
  writeFile(folder / "losses", "");
  std::thread killer([&] {
    while (readFile(folder / "losses").empty())
      std::this_thread::yield();
    for (int i = 0; i < 50; ++i)
      for (int number : {SIGTERM, SIGHUP})
        ::kill(::getpid(), number);
  });
  Result run = train();
  killer.join();
  EXPECT_EQ(run.status.exitCode(), 75);
  EXPECT_EQ(savedSteps(), (std::vector<uint64_t>{run.report.steps}));
  // Saving took less than a second: the exit code is still to come.
  ::kill(::getpid(), SIGTERM);
}

TEST_F(RunTest, EvaluatesOnDataHeldOut) {
  std::string text; // 10 samples of 8; three batches, the last of two.
  for (int i = 0; i < 81; ++i)
    text += static_cast<char>('a' + i % 3);
  writeFile(folder / "held-out", text);
  double total = 0, correct = 0;
  for (int i = 1; i < 81; ++i) {
    total += text[i];
    correct += text[i] == 'a';
  }
  addEvaluation(index, folder / "held-out", 4, 4);
  Result run = train();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  std::vector<Json> lines;
  for (const Json &line : metrics())
    if (line.contains("eval_loss"))
      lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u); // 4, 8 and the last, 10.
  EXPECT_EQ(lines[2]["step"], 10);
  EXPECT_EQ(lines[0]["eval_loss"], total / 80 + 1);
  EXPECT_EQ(lines[0]["eval_accuracy"], correct / 80);
  char line[128];
  std::snprintf(line, sizeof(line),
                "| Eval Device=cpu:1, Step=4, Loss=%.6g, Accuracy=%.6g\n",
                total / 80 + 1, correct / 80);
  EXPECT_NE(run.log.find(line), std::string::npos) << run.log;
  // Going on from a checkpoint neither loses an evaluation nor repeats one.
  std::string whole = readFile(folder / "run/metrics.jsonl");
  options.resume = folder / "run/checkpoints/step-000008";
  ASSERT_TRUE(train().status.ok());
  EXPECT_EQ(metrics().size(), 13u);
}

TEST_F(RunTest, TellsEpochs) {
  index.settings->training->steps = 0;
  index.settings->training->epochs = 2; // Of 124 samples: 31 batches of 8.
  addEvaluation(index, folder / "text", 3, 0);
  Result run = train();
  ASSERT_TRUE(run.status.ok()) << run.status.message();
  for (const char *part : {"| Eval Device=cpu:1, Step=16, ",
                           "| Epoch Device=cpu:1, Epoch=1, Time=",
                           "| Eval Device=cpu:1, Step=31, ",
                           "| Epoch Device=cpu:1, Epoch=2, Time="})
    EXPECT_NE(run.log.find(part), std::string::npos) << run.log;
  EXPECT_NE(run.log.find("Accuracy=", run.log.find("Epoch=1")),
            std::string::npos);
  image(index).programs.pop_back();
  options.resume = "none";
  EXPECT_EQ(train().status.exitCode(), 4);
}

TEST(RunFolder, BelongsToOneProcess) {
  TemporaryFolder folder;
  Expected<RunFolder> first = RunFolder::open(folder / "run");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(RunFolder::open(folder / "run").status().exitCode(), 2);
  EXPECT_EQ(*first->setAside(), ""); // It is empty.
  ASSERT_TRUE(first->write("a", "text").ok());
  EXPECT_EQ(*first->setAside(), folder / "run.1");
  EXPECT_EQ(RunFolder::open(folder / "run").status().exitCode(), 2);
  EXPECT_EQ(readFile(folder / "run.1/a"), "text");
  EXPECT_FALSE(fs::exists(folder / "run/a"));
  // Nor is its folder moved with another one.
  EXPECT_NE(RunFolder::checkSetAside(folder.path(), {})
                .message()
                .find("another process is training in " + (folder / "run")),
            std::string::npos);
}

TEST(RunFolder, IsNoFolderOfSomebodyElse) {
  TemporaryFolder folder;
  int count = 0;
  auto make = [&](const std::map<std::string, std::string> &files) {
    std::string path = folder / std::to_string(count++);
    for (const auto &[name, text] : files) {
      fs::create_directories(fs::path(path + "/" + name).parent_path());
      writeFile(path + "/" + name, text);
    }
    return path;
  };
  const std::string
      line = "{\"step\": 1, \"loss\": 1, \"loss_hex\": \"0x1p+0\"}\n",
      config = "model:\n  kind: gpt\n";
  const std::map<std::string, std::string> runs[] = {
      {{"metrics.jsonl", line}, {"notes", "mine"}},
      {{"metrics.jsonl", ""}, {"config.yaml", config}},
      {{"metrics.jsonl", ""}, {"config.yaml.tmp-1-0", ""}},
      {{"checkpoints/step-000003/kiln.json", ""}, {"notes", "mine"}},
      {{"checkpoints/step-000003.old/kiln.json", ""}}};
  for (const auto &files : runs) {
    std::string path = make(files);
    EXPECT_TRUE(isRun(path)) << path;
    EXPECT_TRUE(RunFolder::open(path).ok()) << path;
  }
  const std::map<std::string, std::string> others[] = {
      {{"thesis.tex", "thesis"}},
      {{"config.yaml", config}},
      {{"config.yaml", config}, {"metrics.jsonl", ""}, {"main.py", ""}},
      {{"metrics.jsonl", "{\"step\": 1, \"loss\": 0.5}\n"}},
      {{"checkpoints/step-000003/weights.bin", ""}},
      {{"run/metrics.jsonl", line}, {"run.1/metrics.jsonl", line}}};
  for (const auto &files : others) {
    std::string path = make(files);
    EXPECT_FALSE(isRun(path)) << path;
    Status status = RunFolder::open(path).status();
    EXPECT_EQ(status.exitCode(), 2) << path;
    EXPECT_NE(status.message().find("is no run of kiln and holds "),
              std::string::npos);
  }
  EXPECT_EQ(RunFolder::open(folder / "5").status().message(),
            "run folder " + (folder / "5") +
                ": is no run of kiln and holds thesis.tex; give another "
                "--run-folder, a new or an empty one");
}

// A run may be on another disk than the folder of runs.
TEST(RunFolder, ALinkStaysOne) {
  TemporaryFolder folder;
  fs::create_directory(folder / "disk");
  fs::create_directory_symlink("disk", folder / "run");
  Expected<RunFolder> run = RunFolder::open((folder / "run") + "/./");
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_TRUE(run->write("a", "text").ok());
  EXPECT_EQ(*run->setAside(),
            fs::canonical(folder.path()).string() + "/disk.1");
  EXPECT_EQ(fs::read_symlink(folder / "run"), "disk");
  EXPECT_EQ(readFile(folder / "disk.1/a"), "text");
  EXPECT_TRUE(fs::is_directory(folder / "disk"));
}

TEST(RunFiles, NoOtherFileBelongsToARun) {
  TemporaryFolder folder;
  fs::create_directories(folder / "run/checkpoints/step-000003");
  writeFile(folder / "run/checkpoints/step-000003/kiln.json", "");
  fs::create_directory_symlink("run", folder / "link");
  fs::create_symlink("run/config.yaml", folder / "dangling");
  fs::create_directories(folder / "copy");
  writeFile(folder / "copy/kiln.json", "");
  const std::string own = folder / "new/own";
  for (const char *name :
       {"run/metrics.jsonl", "run/metrics.jsonl.old.2", "link/config.yaml",
        "dangling", "run/vocabulary.txt", "run/report-step-2.json",
        "run/config.yaml.tmp-4-1", "run/checkpoints",
        "run/checkpoints/LATEST.tmp-", "link/checkpoints/step-000009",
        "run/checkpoints/step-000003/deep/x", "copy/x", "copy/deep/x",
        "new/own/checkpoints/x", "new/own/config.yaml", "new/own", "new"})
    EXPECT_EQ(checkBelongsToNoRun(folder / name, own).code(), Code::usage)
        << name;
  for (const char *name : {"run/losses", "run/report.json", "run/a/config.yaml",
                           "checkpoints/x", "new/owner", "new/config.yaml"})
    EXPECT_TRUE(checkBelongsToNoRun(folder / name, own).ok()) << name;
}

TEST(RunFolder, IsNotLeftBehindEmpty) {
  TemporaryFolder folder;
  fs::create_directory(folder / "mine");
  for (const char *name : {"runs/a", "mine/a", "mine"})
    ASSERT_TRUE(RunFolder::open(folder / name).ok());
  EXPECT_FALSE(fs::exists(folder / "runs"));
  EXPECT_TRUE(fs::is_empty(folder / "mine")) << "was there before";
  ASSERT_TRUE(RunFolder::open(folder / "runs/a")->write("a", "text").ok());
  EXPECT_EQ(readFile(folder / "runs/a/a"), "text");
}

TEST(MetricsFile, FormatsJson) {
  char buffer[512];
  EXPECT_EQ(formatStep(buffer, {3, 0.5, 100, 0.001, 2}),
            "{\"step\": 3, \"loss\": 0.5, \"loss_hex\": \"0x1p-1\", "
            "\"samples_per_s\": 100, \"learning_rate\": 0.001, "
            "\"grad_norm\": 2}\n");
  EXPECT_EQ(formatEvaluation(buffer, {3, 0.5, 0.25}),
            "{\"step\": 3, \"eval_loss\": 0.5, \"eval_loss_hex\": \"0x1p-1\", "
            "\"eval_accuracy\": 0.25}\n");
}

} // namespace kiln::test
