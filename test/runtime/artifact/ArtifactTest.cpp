// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

namespace kiln::test {

using namespace artifact;

static IndexT validIndex() {
  IndexT index = sampleTraining("corpus.txt", 8, 8);
  addVariable(index, "other", ElementType::f32, {4}, 1024, InitKind::zeros);
  return index;
}

static ProgramT &train(IndexT &index) { return *image(index).programs[0]; }

TEST(Artifact, AcceptsASoundIndex) {
  Expected<Artifact> artifact = loadIndex(validIndex());
  ASSERT_TRUE(artifact.ok()) << artifact.status().message();
  EXPECT_NE(artifact->findProgram("train"), nullptr);
  EXPECT_NE(artifact->findVariable("weight"), nullptr);
  EXPECT_EQ(artifact->findVariable("none"), nullptr);
}

struct Fault {
  const char *name;
  std::function<void(IndexT &)> make;
  const char *message;
};

// More than any arena, and close to wrapping around.
static constexpr uint64_t huge = ~uint64_t{0} - 3;

static std::vector<Fault> variableFaults() {
  return {
      {"variable outside",
       [](IndexT &i) { image(i).variables[0]->offset = image(i).arena_bytes; },
       "variable 'weight' of 4 bytes at offset"},
      {"variable wraps",
       [](IndexT &i) { image(i).variables[0]->offset = huge; },
       "leaves the arena"},
      {"variables overlap",
       [](IndexT &i) { image(i).variables[1]->offset = 0; }, "overlaps"},
      {"bytes disagree", [](IndexT &i) { image(i).variables[1]->bytes = 12; },
       "its shape wants 16"},
      {"shape overflows",
       [](IndexT &i) { image(i).variables[1]->shape = {1ll << 62, 1ll << 62}; },
       "more than can be counted"},
      {"negative shape", [](IndexT &i) { image(i).variables[1]->shape = {-4}; },
       "shape wants"},
      {"same name", [](IndexT &i) { image(i).variables[1]->name = "weight"; },
       "occurs twice"},
      {"misaligned", [](IndexT &i) { image(i).variables[1]->offset = 1026; },
       "not aligned"}};
}

static std::vector<Fault> placeFaults() {
  return {{"kernel number",
           [](IndexT &i) {
             train(i).phases[1]->commands[0]->action.AsLaunch()->kernel = 7;
           },
           "launches kernel 7 of 2"},
          {"place outside in the last repetition",
           [](IndexT &i) {
             auto &places =
                 train(i).phases[1]->commands[0]->action.AsLaunch()->places;
             places[0] = Place(places[0].offset(), image(i).arena_bytes);
           },
           "leaves the arena"},
          {"stride wraps",
           [](IndexT &i) {
             train(i).phases[1]->commands[0]->action.AsLaunch()->places[0] =
                 Place(64, ~uint64_t{0});
             train(i).phases[1]->repeat = 3;
           },
           "overflows in its last repetition"},
          {"copy outside",
           [](IndexT &i) {
             train(i).phases[0]->commands[0]->action.AsCopy()->bytes = 1u << 30;
           },
           "leaves the arena"},
          {"input over a variable",
           [](IndexT &i) { train(i).inputs[0]->offset = 960; }, "overlaps"},
          {"staging over an input",
           [](IndexT &i) {
             train(i).inputs[0]->staging_offset = train(i).inputs[1]->offset;
           },
           "overlaps"},
          {"output outside",
           [](IndexT &i) { train(i).outputs[0]->offset = huge; }, "leaves"}};
}

static std::vector<Fault> totalFaults() {
  return {
      {"no repetition", [](IndexT &i) { train(i).phases[0]->repeat = 0; },
       "repeats 0 times"},
      {"device", [](IndexT &i) { i.devices[0]->image = 3; }, "image 3 of 1"},
      {"no device", [](IndexT &i) { i.devices.clear(); },
       "has 0 devices, the mesh 1"},
      {"no image", [](IndexT &i) { i.images.clear(); }, "no image"},
      {"memory kinds", [](IndexT &i) { image(i).memory[0]->bytes += 1; },
       "sum to"},
      {"live bytes",
       [](IndexT &i) { image(i).live_bytes = image(i).arena_bytes + 1; },
       "live bytes"},
      {"live bytes of a command",
       [](IndexT &i) {
         train(i).phases[0]->commands[0]->live_bytes = image(i).live_bytes + 1;
       },
       "has live bytes"},
      {"live host bytes of a command",
       [](IndexT &i) {
         train(i).phases[0]->commands[0]->live_host_bytes =
             image(i).host_bytes + 1;
       },
       "has live bytes"},
      {"arena", [](IndexT &i) { image(i).arena_bytes = huge; },
       "address space"},
      {"items", [](IndexT &i) { i.kernels[0]->stages[0]->items = huge; },
       "items"}};
}

/// Four devices on a mesh of 2 x 2, with a collective and a slice in it.
static IndexT meshIndex() {
  IndexT index = validIndex();
  setMesh(index, {{"data", 2}, {"tensor", 2}});
  image(index).variables[1]->splits = makeSplits({{1}});
  image(index).variables[1]->bytes = 8;
  ProgramT &program = addProgram(index, "sum", 2);
  addCollective(program, CollectiveKind::all_reduce, {0, 1},
                {Piece(Place(512, 0), Place(512, 0), 1, 7, 1)}, 0, 168);
  addWait(program, 0);
  addSlice(program, {1}, Piece(Place(512, 0), Place(576, 0), 1, 3, 2));
  return index;
}

static CollectiveT &collective(IndexT &index) {
  return *image(index)
              .programs[1]
              ->phases[0]
              ->commands[0]
              ->action.AsCollective();
}

static std::vector<Fault> meshFaults() {
  return {
      {"devices", [](IndexT &i) { i.mesh[0]->size = 3; },
       "has 4 devices, the mesh 6"},
      {"axis", [](IndexT &i) { collective(i).axes = {2}; },
       "names mesh axis 2 of 2"},
      {"axis twice", [](IndexT &i) { collective(i).axes = {1, 1}; },
       "names mesh axis 1 twice"},
      {"splits",
       [](IndexT &i) {
         image(i).variables[1]->splits = makeSplits({{0}, {1}});
       },
       "splits 2 dimensions of 1"},
      {"axis cuts twice",
       [](IndexT &i) {
         image(i).variables[1]->flat = std::make_unique<SplitT>();
         image(i).variables[1]->flat->axes = {1};
       },
       "names mesh axis 1 twice"},
      {"view", [](IndexT &i) { image(i).variables[1]->view = {5}; },
       "has 4 elements, its view 5"},
      {"bytes of a part", [](IndexT &i) { image(i).variables[1]->bytes = 16; },
       "its shape wants 8"},
      {"moved bytes",
       [](IndexT &i) {
         image(i).programs[1]->phases[0]->commands[0]->bytes = 1;
       },
       "is said to move 1 bytes, it moves 168"},
      {"piece outside",
       [](IndexT &i) {
         collective(i).pieces[0] =
             Piece(Place(512, 0), Place(512, 0), 1, 1u << 20, 1);
       },
       "leaves the arena"},
      {"piece overflows",
       [](IndexT &i) {
         collective(i).pieces[0] =
             Piece(Place(512, 0), Place(512, 0), huge, 7, huge);
       },
       "larger than can be counted"},
      {"ticket",
       [](IndexT &i) {
         image(i).programs[1]->phases[0]->commands[1]->action.AsWait()->ticket =
             1;
       },
       "waits for ticket 1, which is not started"},
      {"no wait",
       [](IndexT &i) {
         auto &commands = image(i).programs[1]->phases[0]->commands;
         commands.erase(commands.begin() + 1);
       },
       "starts ticket 0 again before it is waited for"},
      {"no wait at the end",
       [](IndexT &i) {
         auto &phase = *image(i).programs[1]->phases[0];
         phase.repeat = 1;
         phase.commands.erase(phase.commands.begin() + 1);
       },
       "ticket 0 is never waited for"},
      {"coordinate",
       [](IndexT &i) {
         image(i).coordinates.push_back(std::make_unique<CoordinateT>());
         image(i).coordinates[0]->axis = 7;
       },
       "coordinate on axis 7 of 2"},
      {"red zone",
       [](IndexT &i) {
         image(i).red_zones = {RedZone(image(i).arena_bytes - 8, 9)};
       },
       "red zone of 9 bytes at offset"},
      {"images differ",
       [](IndexT &i) {
         IndexT other = validIndex();
         i.images.push_back(std::move(other.images[0]));
       },
       "images have different variables or programs"}};
}

TEST(Artifact, RejectsWhatDoesNotFitItsMesh) {
  EXPECT_EQ(loadIndex(meshIndex()).status().message(), "");
  for (const Fault &fault : meshFaults()) {
    IndexT index = meshIndex();
    fault.make(index);
    EXPECT_NE(loadIndex(index).status().message().find(fault.message),
              std::string::npos)
        << fault.name << ": " << loadIndex(index).status().message();
  }
}

// Each of these passes the flatbuffer's verifier, and would make the executor
// read or write outside its memory.
TEST(Artifact, RejectsWhatTheVerifierCannotKnow) {
  for (const std::vector<Fault> &faults :
       {variableFaults(), placeFaults(), totalFaults()})
    for (const Fault &fault : faults) {
      IndexT index = validIndex();
      fault.make(index);
      Status status = loadIndex(index).status();
      EXPECT_EQ(status.code(), Code::inputRejected) << fault.name;
      EXPECT_NE(status.message().find(fault.message), std::string::npos)
          << fault.name << ": " << status.message();
    }
}

// An attacker can make hashes match, so the index itself must withstand damage.
TEST(Artifact, SurvivesADamagedIndexWithMatchingHashes) {
  flatbuffers::FlatBufferBuilder builder;
  IndexT index = meshIndex();
  FinishIndexBuffer(builder, CreateIndex(builder, &index));
  std::vector<uint8_t> bytes(builder.GetBufferPointer(),
                             builder.GetBufferPointer() + builder.GetSize());
  std::mt19937_64 random(2);
  for (int i = 0; i < 5000; ++i) {
    std::vector<uint8_t> damaged = bytes;
    for (int flips = 0; flips < 1 + i % 3; ++flips)
      damaged[random() % damaged.size()] ^= 1u << random() % 8;
    std::vector<Section> sections = {
        {"index", std::as_bytes(std::span(damaged))}, {"kernels", {}}};
    Expected<Container> container =
        Container::parse(packContainer(sections), "x");
    ASSERT_TRUE(container.ok());
    (void)Artifact::fromContainer(std::move(*container)).ok();
  }
}

TEST(Artifact, RejectsAMissingIndex) {
  std::vector<Section> sections = {{"kernels", {}}};
  Expected<Container> container =
      Container::parse(packContainer(sections), "x");
  ASSERT_TRUE(container.ok());
  EXPECT_EQ(Artifact::fromContainer(std::move(*container)).status().message(),
            "x: has no section 'index'; compile again with this kiln");
}

} // namespace kiln::test
