// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

namespace kiln::test {

using namespace artifact;

namespace {

/// A buffer of 8 elements, full: [1, 8, 1].
Piece piece(uint64_t source, uint64_t target, uint64_t size = 8) {
  return Piece(Place(source, 0), Place(target, 0), 1, size, 1);
}

/// Two devices that gather 8 elements and copy the result away.
IndexT gathering() {
  IndexT index = emptyIndex(4096);
  index.device = "dry";
  setMesh(index, {{"data", 2}});
  ProgramT &program = addProgram(index, "train");
  addOutput(program, "out", ElementType::f32, {8}, 256);
  addCollective(program, CollectiveKind::all_gather, {0}, {piece(0, 64)}, 0,
                32);
  program.phases[0]->commands.back()->label = "gather w";
  addWait(program, 0);
  addCopy(program, Place(256, 0), Place(64, 0), 32);
  return index;
}

CommandT &command(IndexT &index, size_t number, size_t image = 0) {
  return *index.images[image]->programs[0]->phases[0]->commands[number];
}

CollectiveT &collective(IndexT &index, size_t number, size_t image = 0) {
  return *command(index, number, image).action.AsCollective();
}

/// The second half of the devices runs an image of its own.
IndexT &giveSecondImage(IndexT &index) {
  index.images.push_back(std::make_unique<ImageT>(image(index)));
  for (size_t i = index.devices.size() / 2; i < index.devices.size(); ++i)
    index.devices[i]->image = 1;
  return index;
}

/// Status of a run of the program, with code that cannot be loaded.
Status run(const IndexT &index) {
  std::vector<std::byte> noCode(100, std::byte{7});
  Expected<Artifact> artifact = loadIndex(index, noCode);
  if (!artifact.ok())
    return artifact.status();
  Expected<Session> session = Session::fromArtifact(std::move(*artifact));
  if (!session.ok())
    return session.status();
  Status status = session->reserve();
  return status.ok() ? session->run("train") : status;
}

void expectViolation(const IndexT &index,
                     const std::vector<std::string> &parts) {
  Status status = run(index);
  EXPECT_FALSE(status.ok());
  for (const std::string &part : parts)
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.message() << "\nlacks: " << part;
}

} // namespace

TEST(Dry, ChecksAndComputesNothing) {
  IndexT index = gathering();
  // More than any machine has.
  image(index).arena_bytes = image(index).memory[0]->bytes = uint64_t{1} << 46;
  addVariable(index, "w", ElementType::f32, {1 << 20, 1 << 20}, 4096,
              InitKind::normal, 0, 1);
  Expected<Session> session =
      Session::fromArtifact(std::move(*loadIndex(index)));
  ASSERT_TRUE(session.ok()) << session.status().message();
  ASSERT_TRUE(session->reserve().ok());
  EXPECT_FALSE(session->computes());
  EXPECT_EQ(session->reservedBytes(), uint64_t{1} << 46);
  EXPECT_TRUE(session->initialise(1).ok());
  EXPECT_TRUE(session->run("train").ok());
  EXPECT_TRUE(session->run("train").ok());
  // Half of the elements are the other member's.
  EXPECT_EQ(session->receivedBytes(0), 2 * 16u);
  EXPECT_EQ(session->receivedBytes(1), 2 * 16u);
  std::vector<float> out(8, 1);
  EXPECT_TRUE(
      session
          ->readOutput("train", "out", std::as_writable_bytes(std::span(out)))
          .ok());
  EXPECT_EQ(out, std::vector<float>(8));
}

TEST(Dry, TrainsWithLossZero) {
  TemporaryFile text(sampleText(1000)), losses;
  IndexT index = shardedTraining(text.path(), 3);
  index.device = "dry";
  addEvaluation(index, text.path(), 4, 2);
  Session session = openSession(index, {});
  TemporaryFolder folder;
  TrainOptions options;
  options.logFile = -1;
  options.isInitialising = true;
  options.lossesPath = losses.path();
  options.runFolder = folder / "run";
  options.steps = 3;
  Status status = session.train(options);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(losses.read(), "1 0 0x0p+0\n2 0 0x0p+0\n3 0 0x0p+0\n");
}

TEST(Dry, FindsPlacesOutsideTheArena) {
  IndexT index = gathering();
  image(index).programs[0]->phases[0]->repeat = 3;
  command(index, 2).label = "keep w";
  *command(index, 2).action.AsCopy()->target = Place(4080, 0);
  expectViolation(index, {"device 0: program 'train': phase 'main' command 2 "
                          "(keep w) target of 32 bytes at offset 4080 leaves"});
  // In the last repetition.
  index = gathering();
  image(index).programs[0]->phases[0]->repeat = 3;
  *command(index, 2).action.AsCopy()->target = Place(256, 1912);
  expectViolation(index, {"command 2 target of 32 bytes at offset 4080"});
}

TEST(Dry, FindsPlacesBetweenDeviceAndHost) {
  IndexT index = gathering();
  image(index).host_bytes = 4096;
  image(index).memory[0]->bytes = 8192;
  *command(index, 2).action.AsCopy()->target = Place(4080, 0);
  expectViolation(index,
                  {"command 2 target of 32 bytes at offset 4080 "
                   "crosses into the host's part, which begins at 4096"});
  image(index).programs[0]->phases[0]->repeat = 2;
  *command(index, 2).action.AsCopy()->target = Place(2048, 2048);
  expectViolation(index, {"command 2 target with stride 2048 moves into the "
                          "host's part in 2 repetitions"});
}

TEST(Dry, FindsBuffersInTheWrongMemory) {
  IndexT index = gathering();
  image(index).host_bytes = 4096;
  image(index).memory[0]->bytes = 8192;
  uint32_t kernel = addKernel(index, {{"update", 8}});
  index.kernels[kernel]->buffers = {32};
  addLaunch(*image(index).programs[0], kernel, {Place(4096, 0)});
  expectViolation(index, {"command 3 buffer 0 is in host memory, its kernel "
                          "works on device memory"});
  index.kernels[kernel]->host = true;
  command(index, 3).action.AsLaunch()->places = {Place(512, 0)};
  expectViolation(index, {"command 3 buffer 0 is in device memory, its kernel "
                          "works on host memory"});
}

TEST(Dry, FindsPiecesOutsideTheArena) {
  IndexT index = gathering();
  addSlice(*image(index).programs[0], {0}, piece(4080, 256));
  expectViolation(index, {"command 3 source of 32 bytes at offset 4080"});
  index = gathering();
  collective(index, 0).pieces[0] = piece(0, 4080);
  expectViolation(index,
                  {"command 0 (gather w) target of 32 bytes at offset 4080"});
}

TEST(Dry, FindsTicketsThatAreNotWaitedForOnce) {
  IndexT index = gathering();
  addWait(*image(index).programs[0], 0);
  expectViolation(index,
                  {"command 3 waits for ticket 0, which is not started"});
  index = gathering();
  command(index, 1).action.AsWait()->ticket = 1;
  expectViolation(index,
                  {"command 1 waits for ticket 1, which is not started"});
  index = gathering();
  auto &commands = image(index).programs[0]->phases[0]->commands;
  commands.erase(commands.begin() + 1);
  expectViolation(index, {"program 'train'", "ticket 0 is never waited for"});
}

TEST(Dry, FindsBytesThatAreNotAsPlanned) {
  IndexT index = gathering();
  command(index, 0).bytes = 64;
  expectViolation(index, {"command 0 (gather w) is said to move 64 bytes, it "
                          "moves 32"});
}

TEST(Dry, FindsCommandsOnMemoryInFlight) {
  auto between = [](auto add) {
    IndexT index = gathering();
    auto &commands = image(index).programs[0]->phases[0]->commands;
    add(index, *image(index).programs[0]);
    std::rotate(commands.begin() + 1, commands.end() - 1, commands.end());
    return index;
  };
  expectViolation(between([](IndexT &, ProgramT &program) {
                    addCopy(program, Place(512, 0), Place(80, 0), 64);
                  }),
                  {"device 0, program 'train', phase 'main', command 1 (Copy): "
                   "touches [80, 144) while [64, 96) is a target of a "
                   "collective in flight (ticket 0, command 0 of 'main')"});
  expectViolation(between([](IndexT &, ProgramT &program) {
                    addCopy(program, Place(8, 0), Place(512, 0), 64);
                  }),
                  {"[0, 16) is a source of a collective in flight"});
  expectViolation(between([](IndexT &index, ProgramT &program) {
                    addLaunch(program, addKernel(index, {{"f", 1}}),
                              {Place(0, 0), Place(64, 0)});
                  }),
                  {"command 1 (f): touches [64, 65)"});
  // Known sizes are respected, and buffers that are only read are told apart.
  auto launch = [](uint64_t first, uint64_t second) {
    return [=](IndexT &index, ProgramT &program) {
      addLaunch(program, addKernel(index, {{"f", 1}}),
                {Place(first, 0), Place(second, 0)});
      index.kernels[0]->buffers = {16, 64};
      index.kernels[0]->reads = 1;
    };
  };
  EXPECT_TRUE(run(between(launch(0, 96))).ok());
  expectViolation(between(launch(512, 8)), {"touches [8, 72) while [0, 16)"});
  expectViolation(between(launch(0, 4040)),
                  {"command 1 buffer 1 of 64 bytes at offset 4040 leaves the "
                   "arena of 4096 bytes"});
  EXPECT_TRUE(run(between([](IndexT &, ProgramT &program) {
                addCopy(program, Place(512, 0), Place(0, 0), 16);
              })).ok());
}

TEST(Dry, FindsUnequalCollectives) {
  IndexT index = gathering();
  EXPECT_TRUE(run(giveSecondImage(index)).ok());
  collective(index, 0, 1).pieces[0] = piece(0, 64, 10);
  command(index, 0, 1).bytes = 40;
  std::string place = ", program 'train', phase 'main', command 0 (gather w)";
  expectViolation(index, {"device 1" + place +
                          ": found all_gather (sum) of f32 over data "
                          "with sizes 1 10 1, wanted all_gather (sum) "
                          "of f32 over data with sizes 1 8 1 as in "
                          "device 0" +
                          place});
  command(index, 0, 1) = command(index, 0, 0);
  collective(index, 0, 1).element_type = ElementType::i32;
  expectViolation(index, {"found all_gather (sum) of i32", "wanted all_gather "
                                                           "(sum) of f32"});
  command(index, 0, 1) = command(index, 0, 0);
  collective(index, 0, 1).kind = CollectiveKind::reduce_scatter;
  expectViolation(index, {"found reduce_scatter", "wanted all_gather"});
}

TEST(Dry, FindsCollectivesInUnequalOrder) {
  IndexT index = gathering();
  setMesh(index, {{"data", 2}, {"tensor", 2}});
  ProgramT &program = *image(index).programs[0];
  addCollective(program, CollectiveKind::all_reduce, {1}, {piece(512, 576)}, 1,
                64);
  addWait(program, 1);
  giveSecondImage(index);
  EXPECT_TRUE(run(index).ok());
  auto &commands = index.images[1]->programs[0]->phases[0]->commands;
  std::rotate(commands.begin(), commands.begin() + 3, commands.end());
  // Devices 2 and 3 begin with their own group over `tensor`, so they meet
  // devices 0 and 1 after it.
  EXPECT_TRUE(run(index).ok());
  index.devices[1]->image = 1;
  index.devices[3]->image = 0;
  // 0 waits for 2, which waits for 3, which waits for 1, which waits for 0.
  expectViolation(
      index, {"device 0", "waits for ever for device 2", "found all_reduce"});
  // One device has it and the other has not.
  index = gathering();
  giveSecondImage(index);
  index.images[1]->programs[0]->phases[0]->commands.clear();
  expectViolation(index, {"waits for ever for device 1", "the program's end"});
}

// By image: 4096 devices take no longer than two.
TEST(Dry, ChecksManyDevices) {
  IndexT index = gathering();
  setMesh(index, {{"data", 512}, {"tensor", 8}});
  image(index).programs[0]->phases[0]->repeat = 1000000;
  command(index, 0).bytes = 511 * 32;
  EXPECT_TRUE(run(index).ok());
  EXPECT_TRUE(run(giveSecondImage(index)).ok());
}

} // namespace kiln::test
