// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/collective/SampleCollective.h"

#include <fstream>
#include <numeric>

namespace kiln::test {

using namespace artifact;

static const std::vector<std::byte> &noKernels() {
  static const std::vector<std::byte> bytes = compileKernels("");
  return bytes;
}

/// The collective of a sample as a program, with an input and an output of each
/// piece.
template <typename Element> class CollectiveRun {
public:
  CollectiveRun(const Subject &subject, ElementType type, Combine combine)
      : sample_(subject, combine, wholeNumber),
        session_(openSession(makeIndex(type), noKernels())) {
    for (uint32_t device = 0; device < sample_.devices(); ++device)
      for (size_t piece = 0; piece < subject.pieces.size(); ++piece)
        feed(device, piece);
  }

  void check() {
    for (int run = 0; run < 3; ++run) {
      ASSERT_TRUE(session_.run("train").ok());
      uint64_t received = 0;
      for (uint32_t device = 0; device < sample_.devices(); ++device) {
        received += session_.receivedBytes(device);
        for (size_t piece = 0; piece < sample_.subject().pieces.size(); ++piece)
          checkPiece(device, piece);
      }
      EXPECT_EQ(received, (run + 1) * sample_.movedBytes() * sample_.devices() /
                              sample_.members());
      if (sample_.subject().isInPlace)
        break; // The next would combine results.
    }
  }

private:
  IndexT makeIndex(ElementType type) const {
    const Subject &subject = sample_.subject();
    IndexT index = emptyIndex(1 << 20, 1);
    setMesh(index, subject.mesh);
    ProgramT &program = addProgram(index, "train");
    uint64_t offset = 0;
    std::vector<Piece> pieces;
    for (auto [outer, size, inner] : subject.pieces) {
      uint64_t target = offset + (subject.isInPlace ? 0 : 1 << 16);
      std::string number = std::to_string(pieces.size());
      addInput(program, "in" + number, type,
               sample_.sourceElements(pieces.size()), {}, offset, offset);
      addOutput(program, "out" + number, type,
                {static_cast<int64_t>(sample_.targetElements(pieces.size()))},
                target);
      pieces.push_back(
          Piece(Place(offset, 0), Place(target, 0), outer, size, inner));
      offset += 1 << 17;
    }
    addCollective(program, subject.kind, subject.axes, pieces, 3,
                  sample_.movedBytes(), type, sample_.combine());
    addWait(program, 3);
    return index;
  }

  void feed(uint32_t device, size_t piece) {
    Status status = session_.writeInput(
        "train", "in" + std::to_string(piece),
        std::as_bytes(std::span(sample_.source(device, piece))), device);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void checkPiece(uint32_t device, size_t piece) {
    std::vector<Element> found(sample_.targetElements(piece));
    ASSERT_TRUE(session_
                    .readOutput("train", "out" + std::to_string(piece),
                                std::as_writable_bytes(std::span(found)),
                                device)
                    .ok());
    expectSame<Element>(found, sample_.wanted(device, piece), device, piece);
  }

  CollectiveSample<Element> sample_;
  Session session_;
};

// Integers, so that the wanted results are exact; the padding holds other
// values, which must not come out. Counted bytes equal the plan's.
TEST(Collective, ComputesEveryKindOnEveryGroup) {
  for (const Subject &subject : allSubjects()) {
    CollectiveRun<float>(subject, ElementType::f32, Combine::sum).check();
    CollectiveRun<double>(subject, ElementType::f64, Combine::max).check();
    CollectiveRun<int32_t>(subject, ElementType::i32, Combine::max).check();
    CollectiveRun<int64_t>(subject, ElementType::i64, Combine::sum).check();
    if (HasFailure())
      return;
  }
}

static const std::vector<std::byte> &kernels() {
  static const std::vector<std::byte> bytes = compileKernels(R"(
#include <stdint.h>
#include <time.h>
void add_place(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const int32_t *place = b[0]; float *out = b[1];
  for (int64_t i = begin; i < end; ++i) out[i] += place[0] + 1;
}
void sleep_first(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const int32_t *place = b[0];
  struct timespec wait = {place[0] == 1 ? 60 : 0, 0};
  nanosleep(&wait, 0);
}
)");
  return bytes;
}

/// Two collectives at once, in flight behind each other and under launches, in
/// several repetitions: every repetition adds each device's values over 3
/// devices.
static IndexT repeatedIndex(unsigned threads) {
  IndexT index = emptyIndex(1 << 16, threads);
  setMesh(index, {{"data", 3}});
  auto coordinate = std::make_unique<CoordinateT>();
  coordinate->offset = 64;
  image(index).coordinates.push_back(std::move(coordinate));
  uint32_t kernel = addKernel(index, {{"add_place", 16}});
  ProgramT &program = addProgram(index, "train", 4);
  for (uint64_t i = 0; i < 2; ++i) {
    uint64_t base = 1024 + 8192 * i;
    addLaunch(program, kernel, {Place(64, 0), Place(base, 64)});
    addCollective(program, CollectiveKind::all_reduce, {0},
                  {Piece(Place(base, 64), Place(base + 4096, 64), 1, 16, 1)},
                  static_cast<uint32_t>(i), 256);
    addOutput(program, "out" + std::to_string(i), ElementType::f32, {64},
              base + 4096);
  }
  addWait(program, 1);
  addWait(program, 0);
  return index;
}

TEST(Collective, RunsBesideLaunchesInEveryRepetition) {
  for (unsigned threads : {1u, 2u}) {
    Session session = openSession(repeatedIndex(threads), kernels());
    for (int run = 1; run <= 20; ++run) {
      ASSERT_TRUE(session.run("train").ok());
      for (size_t device = 0; device < 3; ++device)
        for (const char *name : {"out0", "out1"}) {
          std::vector<float> out(64);
          ASSERT_TRUE(session
                          .readOutput("train", name,
                                      std::as_writable_bytes(std::span(out)),
                                      device)
                          .ok());
          EXPECT_EQ(out, std::vector<float>(64, 6.0f * run));
        }
    }
  }
}

static uint64_t residentPages() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

// 100,000 collectives leak nothing.
TEST(Collective, DoesNotGrowMemory) {
  IndexT index = emptyIndex(1 << 16, 1);
  setMesh(index, {{"data", 2}});
  ProgramT &program = addProgram(index, "train", 10000);
  addCollective(program, CollectiveKind::all_reduce, {0},
                {Piece(Place(0, 0), Place(64, 0), 1, 3, 1)}, 0, 24);
  addWait(program, 0);
  Session session = openSession(index, noKernels());
  ASSERT_TRUE(session.run("train").ok());
  uint64_t before = residentPages();
  for (int run = 1; run < 10; ++run)
    ASSERT_TRUE(session.run("train").ok());
  EXPECT_LE(residentPages(), before + 16);
  EXPECT_EQ(session.receivedBytes(0) + session.receivedBytes(1), 24u * 100000);
}

TEST(Collective, SlicesTakeTheOwnPart) {
  IndexT index = emptyIndex(1 << 20, 2);
  setMesh(index, {{"data", 2}, {"tensor", 3}});
  ProgramT &program = addProgram(index, "train");
  // A small piece; then, shared by workers, one of many rows, one of one row
  // and one whose last shard is only padding.
  std::vector<std::array<uint64_t, 3>> pieces = {
      {2, 7, 1}, {500, 5, 16}, {1, 32000, 1}, {1, 2, 16384}};
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto [outer, size, inner] = pieces[i];
    uint64_t base = i << 18, part = (size + 2) / 3 * outer * inner;
    addInput(program, "in" + std::to_string(i), ElementType::f32,
             outer * size * inner, {}, base, base);
    addOutput(program, "out" + std::to_string(i), ElementType::f32,
              {static_cast<int64_t>(part)}, base + (1 << 18) - 65536 * 1);
    addSlice(program, {1},
             Piece(Place(base, 0), Place(base + (1 << 18) - 65536, 0), outer,
                   size, inner));
  }
  Session session = openSession(index, noKernels());
  for (size_t device = 0; device < 6; ++device)
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::vector<float> in(pieces[i][0] * pieces[i][1] * pieces[i][2]);
      std::iota(in.begin(), in.end(), 1.0f);
      ASSERT_TRUE(session
                      .writeInput("train", "in" + std::to_string(i),
                                  std::as_bytes(std::span(in)), device)
                      .ok());
    }
  ASSERT_TRUE(session.run("train").ok());
  for (size_t device = 0; device < 6; ++device)
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto [outer, size, inner] = pieces[i];
      uint64_t rows = (size + 2) / 3;
      std::vector<float> out(outer * rows * inner);
      ASSERT_TRUE(session
                      .readOutput("train", "out" + std::to_string(i),
                                  std::as_writable_bytes(std::span(out)),
                                  device)
                      .ok());
      for (uint64_t j = 0; j < out.size(); ++j) {
        uint64_t o = j / (rows * inner),
                 row = j / inner % rows + device % 3 * rows;
        float wanted =
            row < size
                ? static_cast<float>((o * size + row) * inner + j % inner + 1)
                : 0.0f;
        ASSERT_EQ(out[j], wanted) << device << " " << i << " " << j;
      }
    }
}

// A device that hangs is named, with the collective that is blocked.
TEST(CollectiveDeathTest, GivesUpAMemberThatDoesNotCome) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  IndexT index = repeatedIndex(1);
  uint32_t kernel = addKernel(index, {{"sleep_first", 1}});
  ProgramT &program = addProgram(index, "hang");
  addLaunch(program, kernel, {Place(64, 0)});
  addCollective(program, CollectiveKind::all_reduce, {0},
                {Piece(Place(1024, 0), Place(1024, 0), 1, 16, 1)}, 0, 256);
  program.phases[0]->commands.back()->label = "all_reduce data h.3";
  addWait(program, 0);
  EXPECT_EXIT(
      {
        ::setenv("KILN_COLLECTIVE_TIMEOUT", "3", 1);
        Session session = openSession(index, kernels());
        (void)session.run("hang");
      },
      testing::ExitedWithCode(7),
      "collective 'all_reduce data h.3 \\(main 1\\)' timed out: device 1 has "
      "not come "
      "within 3 s");
}

TEST(Collective, RefusesSettingsThatItCannotRead) {
  IndexT index = repeatedIndex(1);
  for (auto [name, value] : {std::pair("KILN_COLLECTIVE_TIMEOUT", "soon"),
                             std::pair("KILN_COLLECTIVE_TIMEOUT", "0"),
                             std::pair("KILN_FAULT", "link:down")}) {
    ::setenv(name, value, 1);
    Status status =
        Session::fromArtifact(std::move(*loadIndex(index, kernels()))).status();
    ::unsetenv(name);
    EXPECT_EQ(status.code(), Code::usage);
    EXPECT_NE(status.message().find(value), std::string::npos);
  }
}

// Full tensors are sharded and gathered again under every sharding; initial
// values are those of one device.
TEST(Session, CutsVariablesAndPutsThemTogether) {
  auto make = [](std::vector<std::pair<std::string, uint32_t>> mesh) {
    IndexT index = emptyIndex(1 << 16, 2);
    addProgram(index, "nothing");
    addVariable(index, "w", ElementType::f32, {5, 7}, 0, InitKind::normal, 0,
                1);
    if (!mesh.empty()) {
      setMesh(index, std::move(mesh));
      VariableT &w = *image(index).variables[0];
      w.view = {5, 7, 1};
      w.splits = makeSplits({{}, {1}, {}});
      w.flat = std::make_unique<SplitT>();
      w.flat->axes = {0};
      w.bytes = 4 * ((5 * 4 + 2) / 3);
    }
    return index;
  };
  Session one = openSession(make({}), noKernels());
  Session many = openSession(make({{"data", 3}, {"tensor", 2}}), noKernels());
  std::vector<float> wanted(35), found(35);
  for (Session *session : {&one, &many}) {
    ASSERT_TRUE(session->initialise(5).ok());
    auto &values = session == &one ? wanted : found;
    ASSERT_TRUE(
        session->readVariable("w", std::as_writable_bytes(std::span(values)))
            .ok());
  }
  EXPECT_EQ(found, wanted);
  std::iota(wanted.begin(), wanted.end(), 3.0f);
  ASSERT_TRUE(many.writeVariable("w", std::as_bytes(std::span(wanted))).ok());
  ASSERT_TRUE(
      many.readVariable("w", std::as_writable_bytes(std::span(found))).ok());
  EXPECT_EQ(found, wanted);
  for (size_t device = 0; device < 6; ++device)
    EXPECT_EQ(many.reservedBytes(device), 1u << 16);
}

TEST(Trace, HasATrackForEachQueueAndArrowsBetweenThem) {
  TemporaryFile file;
  SessionOptions options;
  options.trace.path = file.path();
  Session session = openSession(repeatedIndex(1), kernels(), options);
  ASSERT_TRUE(session.run("train").ok());
  std::map<std::string, int> categories;
  std::map<uint64_t, std::string> arrows; // By collective.
  std::set<std::pair<int, int>> tracks;
  for (const nlohmann::json &event : nlohmann::json::parse(file.read())) {
    std::string phase = event["ph"];
    if (phase == "X") {
      ++categories[event["cat"]];
      tracks.insert({event["pid"].get<int>(), event["tid"].get<int>()});
    }
    if (event.contains("id"))
      arrows[event["id"].get<uint64_t>()] += phase;
  }
  // 3 devices, 4 repetitions of 2 launches, starts and waits.
  for (const char *category :
       {"launch", "start", "rendezvous", "transfer", "wait"})
    EXPECT_EQ(categories[category], 24) << category;
  EXPECT_EQ(categories["step"], 3);
  EXPECT_EQ(tracks.size(), 9u); // Steps, compute and communication of each.
  EXPECT_EQ(arrows.size(), 24u);
  for (auto &[id, phases] : arrows) {
    std::sort(phases.begin(), phases.end());
    EXPECT_EQ(phases, "fst") << id;
  }
}

} // namespace kiln::test
