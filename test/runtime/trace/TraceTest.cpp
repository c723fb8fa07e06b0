// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/trace/Trace.h"
#include "test/runtime/SampleArtifact.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

namespace kiln::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

/// While it lives, files cannot grow past a size: a write fails as on a full
/// disk.
class FullDisk {
public:
  explicit FullDisk(uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

private:
  rlimit before_;
};

TEST(TraceFile, IsACompleteArrayAfterEveryPiece) {
  TemporaryFile file;
  auto trace = TraceFile::open(file.path(), TraceFile::Existing::emptied);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(Json::parse(file.read()), Json::array());
  ASSERT_TRUE((*trace)->append("1,\n2").ok());
  EXPECT_EQ(Json::parse(file.read()), Json({1, 2}));
  ASSERT_TRUE((*trace)->append("3").ok());
  EXPECT_EQ(Json::parse(file.read()), Json({1, 2, 3}));
  ASSERT_TRUE((*trace)->finish().ok());
  EXPECT_EQ((*trace)->bytes() + 3, file.read().size());
}

TEST(TraceFile, KeepsItsPiecesOnAFullDisk) {
  TemporaryFile file;
  auto trace = TraceFile::open(file.path(), TraceFile::Existing::emptied);
  ASSERT_TRUE((*trace)->append("1").ok());
  FullDisk full(100);
  Status status = (*trace)->append("\"" + std::string(200, 'a') + "\"");
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_THAT(status.message(), HasSubstr("trace " + file.path()));
  EXPECT_EQ(Json::parse(file.read()), Json({1}));
}

TEST(TraceFile, RefusesAnExistingFileIfTold) {
  TemporaryFile file("kept");
  auto trace = TraceFile::open(file.path(), TraceFile::Existing::refused);
  EXPECT_EQ(trace.status().code(), Code::io);
  EXPECT_EQ(file.read(), "kept");
}

TEST(Trace, NamesItsFiles) {
  EXPECT_EQ(Trace::pathOfSegment("a/trace.json", 1), "a/trace.json");
  EXPECT_EQ(Trace::pathOfSegment("a/trace.json", 2), "a/trace-2.json");
  EXPECT_EQ(Trace::pathOfSegment("trace", 12), "trace-12");
  EXPECT_EQ(Trace::pathOf("trace.json", 0), "trace.json");
  EXPECT_EQ(Trace::pathOf("trace.json", 3), "trace.json.3");
}

/// Samples of the counter of live bytes, as device/host pairs; -1 for no host.
static std::vector<std::pair<int, int>> readLiveBytes(const Json &events) {
  std::vector<std::pair<int, int>> samples;
  for (const Json &event : events)
    if (event["ph"] == "C")
      samples.push_back(
          {event["args"]["device"], event["args"].value("host", -1)});
  return samples;
}

using Samples = std::vector<std::pair<int, int>>;

// A track without numbers, such as that of communication, must not pull the
// device's counter to zero.
TEST(Trace, CountsLiveBytesWhereTheyChange) {
  TemporaryFile file;
  Trace trace({file.path(), {}});
  Track &compute = trace.addTrack(3, Track::Queue::compute, 4);
  Track &communication = trace.addTrack(3, Track::Queue::communication, 1);
  ASSERT_TRUE(trace.open().ok());
  Track::Clock::time_point now = Track::Clock::now();
  for (uint64_t bytes : {100, 300, 300, 200})
    compute.add({"add", "launch", now, now, 0, 0, bytes});
  communication.add({"sum", "transfer", now, now, 0});
  trace.flush("train", now, now);
  Json events = Json::parse(file.read());
  EXPECT_EQ(readLiveBytes(events), (Samples{{100, -1}, {300, -1}, {200, -1}}));
  for (const Json &event : events)
    if (event["ph"] == "C")
      EXPECT_EQ(event["pid"], 3);
}

// Viewers keep the last value of a series that a sample lacks.
TEST(Trace, CountsHostMemoryThatIsEmptyAtTimes) {
  TemporaryFile file;
  Trace trace({file.path(), {}});
  Track &track = trace.addTrack(0, Track::Queue::compute, 3);
  ASSERT_TRUE(trace.open().ok());
  Track::Clock::time_point now = Track::Clock::now();
  for (uint64_t host : {0, 50, 0})
    track.add({"add", "launch", now, now, 0, 0, 100, host});
  trace.flush("train", now, now);
  EXPECT_EQ(readLiveBytes(Json::parse(file.read())),
            (Samples{{100, 0}, {100, 50}, {100, 0}}));
}

// Each repetition of a phase has the numbers of its commands again, and each
// file begins with one, even if it is that before.
TEST(Trace, CountsTheLiveBytesOfAnArtifact) {
  TemporaryFolder folder;
  artifact::IndexT index = emptyIndex(4096);
  image(index).live_bytes = 640;
  artifact::ProgramT &program = addProgram(index, "train", /*repeat=*/2);
  for (uint64_t live : {576, 640, 576}) {
    addCopy(program, {0, 0}, {64, 0}, 64);
    program.phases[0]->commands.back()->live_bytes = live;
  }
  SessionOptions options;
  options.trace.path = folder / "trace.json";
  options.trace.segmentBytes = 100;
  Session session = openSession(index, compileKernels(""), options);
  for (int run = 0; run < 2; ++run)
    ASSERT_TRUE(session.run("train").ok());
  for (const char *name : {"trace.json", "trace-2.json"})
    EXPECT_EQ(readLiveBytes(Json::parse(readFile(folder / name))),
              (Samples{{576, -1}, {640, -1}, {576, -1}, {640, -1}, {576, -1}}))
        << name;
}

// A file that is large already is followed by one with names of its own.
TEST(Trace, GoesOnInAnotherFile) {
  TemporaryFolder folder;
  Trace trace({folder / "trace.json", {}, /*segmentBytes=*/1000});
  Track &track = trace.addTrack(7, Track::Queue::compute, 20);
  ASSERT_TRUE(trace.open().ok());
  Track::Clock::time_point now = Track::Clock::now();
  std::string second = folder / "trace-2.json";
  for (int step = 1; step < 4; ++step) {
    trace.beginStep(static_cast<uint64_t>(step));
    for (int i = 0; i < 20 && step == 1; ++i)
      track.add({"add", "launch", now, now, 0});
    trace.flush("train", now, now);
    EXPECT_EQ(std::filesystem::exists(second), step > 1);
  }
  ASSERT_TRUE(trace.finish().ok());
  Json events = Json::parse(readFile(second));
  EXPECT_EQ(events[0]["args"]["name"], "device 7");
  EXPECT_EQ(events.back()["name"], "train, step 3");
  // Another trace of that name would leave a second file that is not its own.
  Trace again({folder / "trace.json", {}});
  EXPECT_EQ(again.open().code(), Code::usage);
}

TEST(Trace, RecordsTheStepsThatWereAskedFor) {
  TemporaryFile file;
  Trace trace({file.path(), {2, 3}});
  Track &track = trace.addTrack(0, Track::Queue::compute, 1);
  ASSERT_TRUE(trace.open().ok());
  for (uint64_t step = 1; step < 6; ++step) {
    trace.beginStep(step);
    Track::Clock::time_point now = Track::Clock::now();
    // Any byte may be in the name of a model's part.
    track.add({"a \"b\" \n\xff", "launch", now, now, 4});
    trace.flush("train", now, now);
  }
  std::vector<std::string> steps, launches;
  for (const Json &event : Json::parse(file.read()))
    if (event["ph"] == "X")
      (event["cat"] == "step" ? steps : launches)
          .push_back(event["name"].get<std::string>());
  EXPECT_EQ(steps,
            (std::vector<std::string>{"train, step 2", "train, step 3"}));
  EXPECT_EQ(launches, std::vector<std::string>(2, "a \"b\" \n\uFFFD"));
}

TEST(Trace, AFailureIsKeptUntilItsEnd) {
  Trace trace({"/dev/full", {}});
  EXPECT_EQ(trace.open().code(), Code::io);
  TemporaryFile file;
  Trace filled({file.path(), {}});
  filled.addTrack(0, Track::Queue::compute, 1);
  ASSERT_TRUE(filled.open().ok());
  Track::Clock::time_point now = Track::Clock::now();
  {
    FullDisk full(16);
    filled.flush("train", now, now);
  }
  filled.beginStep(2);
  filled.flush("train", now, now);
  EXPECT_EQ(filled.finish().code(), Code::io);
  EXPECT_EQ(Json::parse(file.read()), Json::array());
}

} // namespace
} // namespace kiln::test
