// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Arena.h"
#include "runtime/device/cpu/KernelLibrary.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <immintrin.h>
#include <set>
#include <sys/resource.h>

namespace kiln::test {

using namespace artifact;

static const std::vector<std::byte> &kernels() {
  static const std::vector<std::byte> bytes = compileKernels(R"(
#define _GNU_SOURCE
#include <stdint.h>
#include <unistd.h>
void name_thread(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  int32_t *out = b[0];
  for (int64_t i = begin; i < end; ++i) out[i] = gettid();
}
// Appends its first item, or seven, to a list that begins with its length.
void append(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  int32_t *list = b[0];
  list[++list[0]] = begin;
}
void append_seven(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  int32_t *list = b[0];
  list[++list[0]] = 7;
}
void twice(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const float *in = b[0]; float *out = b[1];
  for (int64_t i = begin; i < end; ++i) out[i] = 2 * in[i];
}
void record(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  int32_t *out = b[0];
  for (int64_t i = begin; i < end; ++i) out[i] += 1 + worker;
}
// Reads values that other workers wrote in the stage before.
void reverse(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const int32_t *in = b[0]; int32_t *out = b[1];
  for (int64_t i = begin; i < end; ++i) out[i] = in[1023 - i];
}
void fill(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  int32_t *out = b[0];
  for (int64_t i = begin; i < end; ++i) out[i] = 3 * i;
}
void square(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const volatile float *in = b[0]; float *out = b[1];
  for (int64_t i = begin; i < end; ++i) out[i] = in[i] * in[i];
}
void bump(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  int32_t *out = b[0];
  for (int64_t i = begin; i < end; ++i) out[0] += 1;
}
)");
  return bytes;
}

template <typename Element>
static std::vector<Element> output(const Session &session, const char *name,
                                   size_t count,
                                   const char *program = "train") {
  std::vector<Element> values(count);
  Status status = session.readOutput(program, name,
                                     std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

static void feed(Session &session, const char *name,
                 const std::vector<float> &values) {
  Status status =
      session.writeInput("train", name, std::as_bytes(std::span(values)));
  ASSERT_TRUE(status.ok()) << status.message();
}

// Adds the index of its worker, from 1 on, to every item.
static std::vector<int32_t> recordWorkers(uint64_t items) {
  IndexT index = emptyIndex(1 << 16, 3);
  uint32_t kernel = addKernel(index, {{"record", items}});
  ProgramT &program = addProgram(index, "train");
  addOutput(program, "worker", ElementType::i32, {int64_t(items)}, 64);
  addLaunch(program, kernel, {Place(64, 0)});
  Session session = openSession(index, kernels());
  EXPECT_TRUE(session.run("train").ok());
  return output<int32_t>(session, "worker", items);
}

// Few items are divided statically: each worker has its own. Of many, workers
// steal pieces that no worker has begun, so that only the total is certain: all
// run, and none twice.
TEST(Executor, SharesItemsOutOverWorkers) {
  EXPECT_EQ(recordWorkers(6), (std::vector<int32_t>{1, 1, 2, 2, 3, 3}));
  std::vector<int32_t> many = recordWorkers(1000);
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(many[i] >= 1 && many[i] <= 3) << i << ": " << many[i];
}

// Kernels on host memory run on threads of the host: only the thread that
// submits them is a device's. Two devices take turns.
TEST(Executor, HostKernelsRunOnTheHostsWorkers) {
  IndexT index = emptyIndex(4096, 4);
  setMesh(index, {{"data", 2}});
  image(index).host_bytes = 4096;
  image(index).memory[0]->bytes = 8192;
  uint32_t onDevice = addKernel(index, {{"name_thread", 64}});
  uint32_t onHost = addKernel(index, {{"name_thread", 64}});
  index.kernels[onHost]->host = true;
  ProgramT &program = addProgram(index, "train");
  addOutput(program, "device", ElementType::i32, {64}, 0);
  addOutput(program, "host", ElementType::i32, {64}, 4096);
  addLaunch(program, onDevice, {Place(0, 0)});
  addLaunch(program, onHost, {Place(4096, 0)});
  Session session = openSession(index, kernels());
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(session.run("train").ok());
    std::set<int32_t> device, host;
    for (size_t number : {0, 1})
      for (auto [name, others] :
           {std::pair{"device", &device}, {"host", &host}}) {
        std::vector<int32_t> threads(64);
        ASSERT_TRUE(session
                        .readOutput("train", name,
                                    std::as_writable_bytes(std::span(threads)),
                                    number)
                        .ok());
        // Worker 0, which has the first item, is the submitting thread.
        for (int32_t thread : threads)
          if (thread != threads.front())
            others->insert(thread);
        ASSERT_NE(threads.front(), 0) << name;
        ASSERT_EQ(others->count(0), 0u) << name;
      }
    for (int32_t thread : host)
      EXPECT_EQ(device.count(thread), 0u);
  }
}

// Two stages alternate; the items of a round follow those of the round before.
TEST(Executor, RoundsOfStagesAlternate) {
  IndexT index = emptyIndex(1 << 16, 3);
  uint32_t kernel = addKernel(index, {{"append", 1}, {"append_seven", 1}});
  index.kernels[kernel]->stages[0]->rounds = 3;
  index.kernels[kernel]->stages[1]->rounds = 3;
  ProgramT &program = addProgram(index, "train");
  addOutput(program, "list", ElementType::i32, {16}, 64);
  addLaunch(program, kernel, {Place(64, 0)});
  Session session = openSession(index, kernels());
  ASSERT_TRUE(session.run("train").ok());
  std::vector<int32_t> list = output<int32_t>(session, "list", 16);
  EXPECT_EQ(std::vector(list.begin(), list.begin() + 7),
            (std::vector<int32_t>{6, 0, 7, 1, 7, 2, 7}));
}

// A kernel that writes one element past its buffer is named, with the place.
TEST(Executor, RedZonesNameTheCommandThatWritesThem) {
  IndexT index = emptyIndex(1 << 16, 2);
  uint32_t fill = addKernel(index, {{"fill", 16}});
  uint32_t more = addKernel(index, {{"twice", 17}});
  ProgramT &program = addProgram(index, "train");
  addOutput(program, "out", ElementType::f32, {16}, 4096);
  addLaunch(program, fill, {Place(1024, 0)});
  addLaunch(program, more, {Place(1024, 0), Place(4096, 0)});
  program.phases.front()->commands.back()->label = "doubles";
  image(index).red_zones = {RedZone(0, 1024), RedZone(1024 + 68, 3072 - 68),
                            RedZone(4096 + 64, 1024)};
  auto run = [&] { return openSession(index, kernels()).run("train").ok(); };
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // There are workers.
  EXPECT_EXIT(run(), testing::ExitedWithCode(70),
              "command 'doubles' has changed bytes 0 to 3 behind the buffer "
              "that ends at offset 4160, 1020 before the one that begins at "
              "offset 5184");
  // With room for it no change is found.
  image(index).red_zones.back() = RedZone(4096 + 68, 1024);
  EXPECT_TRUE(run());
}

TEST(Executor, WorkersMeetBetweenStages) {
  IndexT index = emptyIndex(1 << 16, 4);
  uint32_t kernel = addKernel(index, {{"fill", 1024}, {"reverse", 1024}});
  ProgramT &program = addProgram(index, "train");
  addOutput(program, "out", ElementType::i32, {1024}, 4096);
  addCopy(program, Place(0, 0), Place(16384, 0), 8192); // Zeros.
  addLaunch(program, kernel, {Place(0, 0), Place(4096, 0)});
  Session session = openSession(index, kernels());
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(session.run("train").ok());
    auto out = output<int32_t>(session, "out", 1024);
    for (int i = 0; i < 1024; ++i)
      ASSERT_EQ(out[i], 3 * (1023 - i));
  }
}

// Strided places move with the repetition; other places stay.
TEST(Executor, RepetitionsMoveStridedPlaces) {
  IndexT index = emptyIndex(1 << 16);
  uint32_t twice = addKernel(index, {{"twice", 16}});
  uint32_t bump = addKernel(index, {{"bump", 1}});
  ProgramT &program = addProgram(index, "train", 4);
  addInput(program, "in", ElementType::f32, 64, {}, 0, 0);
  addOutput(program, "out", ElementType::f32, {64}, 4096);
  addOutput(program, "copy", ElementType::f32, {64}, 8192);
  addOutput(program, "count", ElementType::i32, {}, 12288);
  addLaunch(program, twice, {Place(0, 64), Place(4096, 64)});
  addLaunch(program, bump, {Place(12288, 0)});
  addCopy(program, Place(8192, 64), Place(4096, 64), 64);
  Session session = openSession(index, kernels());
  std::vector<float> in(64);
  for (int i = 0; i < 64; ++i)
    in[i] = static_cast<float>(i);
  feed(session, "in", in);
  for (int run = 1; run <= 3; ++run) {
    ASSERT_TRUE(session.run("train").ok());
    EXPECT_EQ(output<int32_t>(session, "count", 1)[0], 4 * run);
  }
  auto out = output<float>(session, "out", 64);
  for (int i = 0; i < 64; ++i)
    ASSERT_EQ(out[i], 2.0f * i);
  EXPECT_EQ(output<float>(session, "copy", 64), out);
}

// Denormals are zero on every worker, and the caller's setting comes back.
TEST(Executor, FlushesDenormalsOnEveryWorker) {
  unsigned before = _mm_getcsr();
  for (unsigned threads : {1u, 3u}) {
    IndexT index = emptyIndex(1 << 16, threads);
    uint32_t kernel = addKernel(index, {{"square", 256}});
    ProgramT &program = addProgram(index, "train");
    addInput(program, "in", ElementType::f32, 256, {}, 0, 0);
    addOutput(program, "out", ElementType::f32, {256}, 4096);
    addLaunch(program, kernel, {Place(0, 0), Place(4096, 0)});
    Session session = openSession(index, kernels());
    feed(session, "in", std::vector<float>(256, 1e-20f));
    ASSERT_TRUE(session.run("train").ok());
    for (float value : output<float>(session, "out", 256))
      ASSERT_EQ(value, 0.0f);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040, before & 0x8040);
}

TEST(Executor, CopiesLargeRanges) {
  const uint64_t bytes =
      (3 << 20) + 20; // Above the limit, and not of whole lines.
  IndexT index = emptyIndex(16 << 20, 3);
  ProgramT &copy = addProgram(index, "train");
  auto size = static_cast<int64_t>(bytes / 4);
  addInput(copy, "in", ElementType::f32, 1, {size}, 0, 0);
  addOutput(copy, "out", ElementType::f32, {size}, 8 << 20);
  addOutput(copy, "after", ElementType::f32, {1}, (8 << 20) + bytes);
  addCopy(copy, Place(8 << 20, 0), Place(0, 0), bytes);
  ProgramT &clear = addProgram(index, "clear");
  addCopy(clear, Place(8 << 20, 0), Place(12 << 20, 0), bytes - 4); // Zeros.
  addOutput(clear, "out", ElementType::f32, {size}, 8 << 20);
  Session session = openSession(index);
  feed(session, "in", std::vector<float>(size, 7.0f));
  ASSERT_TRUE(session.run("train").ok());
  EXPECT_EQ(output<float>(session, "out", size), std::vector<float>(size, 7));
  EXPECT_EQ(output<float>(session, "after", 1)[0], 0);
  ASSERT_TRUE(session.run("clear").ok());
  std::vector<float> wanted(size, 0);
  wanted.back() = 7;
  EXPECT_EQ(output<float>(session, "out", size, "clear"), wanted);
}

TEST(Executor, NamesAMissingFunction) {
  IndexT index = emptyIndex(4096);
  uint32_t kernel = addKernel(index, {{"absent", 1}});
  addLaunch(addProgram(index, "train"), kernel, {});
  Expected<Session> session =
      Session::fromArtifact(std::move(*loadIndex(index, kernels())));
  ASSERT_TRUE(session.ok());
  Status status = session->reserve();
  EXPECT_EQ(status.code(), Code::inputRejected);
  EXPECT_NE(status.message().find("wants function 'absent'"),
            std::string::npos);
}

TEST(Executor, RejectsKernelsThatAreNoSharedObject) {
  IndexT index = emptyIndex(4096);
  addProgram(index, "train");
  std::vector<std::byte> garbage(5000, std::byte{7});
  Status status =
      Session::fromArtifact(std::move(*loadIndex(index, garbage))).status();
  EXPECT_EQ(status.code(), Code::inputRejected);
}

// Two libraries at once, and one after another: dlopen must not mistake them.
TEST(KernelLibrary, DoesNotMistakeOneLibraryForAnother) {
  auto compile = [](const char *value) {
    return compileKernels(
        std::string("#include <stdint.h>\nvoid f(void *const *b, int64_t x, "
                    "int64_t y, int64_t z) { *(int32_t *)b[0] = ") +
        value + "; }");
  };
  std::vector<std::byte> one = compile("1"), two = compile("2");
  auto call = [](const cpu::KernelLibrary &library) {
    int32_t result = 0;
    void *buffers[] = {&result};
    library.find("f")(buffers, 0, 1, 0);
    return result;
  };
  for (int round = 0; round < 3; ++round) {
    auto first = cpu::KernelLibrary::load(one);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(call(*first), 1);
    auto second = cpu::KernelLibrary::load(two);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(call(*second), 2);
    EXPECT_EQ(call(*first), 1);
  }
  auto again = cpu::KernelLibrary::load(two);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(call(*again), 2);
}

TEST(Arena, ReservesExactlyWhatWasPlanned) {
  for (uint64_t bytes : {uint64_t{1}, uint64_t{4097}, uint64_t{5} << 20}) {
    auto arena = cpu::Arena::reserve(bytes);
    ASSERT_TRUE(arena.ok());
    EXPECT_EQ(arena->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % 4096, 0u);
    arena->base()[bytes - 1] = std::byte{1};
    EXPECT_EQ(arena->base()[0] == std::byte{0}, bytes != 1);
  }
}

TEST(Arena, RefusesMoreThanThereIs) {
  auto arena = cpu::Arena::reserve(uint64_t{1} << 46);
  EXPECT_EQ(arena.status().code(), Code::noPlan);
  EXPECT_NE(arena.status().message().find("70368744177664 bytes"),
            std::string::npos);
}

TEST(Executor, ProfilesCommandsWhenAsked) {
  IndexT index = emptyIndex(4096);
  uint32_t kernel = addKernel(index, {{"bump", 1}});
  ProgramT &program = addProgram(index, "train", 5);
  addLaunch(program, kernel, {Place(0, 0)});
  addCopy(program, Place(64, 0), Place(128, 0), 64);
  program.phases[0]->commands[1]->label = "zero";
  SessionOptions options;
  options.isProfiled = true;
  Session session = openSession(index, kernels(), options);
  ASSERT_TRUE(session.run("train").ok());
  ASSERT_TRUE(session.run("train").ok());
  auto profile = session.profile("train");
  ASSERT_EQ(profile.size(), 2u);
  EXPECT_EQ(profile[0].label, "bump");
  EXPECT_EQ(profile[0].runs, 10u);
  EXPECT_GT(profile[0].seconds, 0);
  EXPECT_EQ(profile[1].label, "zero");
}

} // namespace kiln::test
