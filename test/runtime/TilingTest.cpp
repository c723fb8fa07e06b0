// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Tiling.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

namespace kiln::test {

using namespace artifact;

/// Every assignment of mesh axes to dimensions and to the flat split, each axis
/// at most once, in both orders.
static std::vector<std::vector<std::vector<uint32_t>>>
enumerateSplits(uint32_t axes, size_t places) {
  std::vector<std::vector<std::vector<uint32_t>>> all = {
      std::vector<std::vector<uint32_t>>(places)};
  for (uint32_t axis = 0; axis < axes; ++axis) {
    auto before = all;
    for (const auto &splits : before)
      for (size_t place = 0; place < places; ++place)
        for (bool isMajor : {false, true}) {
          auto more = splits;
          more[place].insert(isMajor ? more[place].begin() : more[place].end(),
                             axis);
          if (!isMajor || !splits[place].empty())
            all.push_back(more);
        }
  }
  return all;
}

/// The schema's rule, element by element: the shard that holds an element, and
/// its offset there.
static std::pair<uint32_t, uint64_t> locate(const std::vector<uint64_t> &sizes,
                                            const std::vector<uint64_t> &counts,
                                            uint64_t flatCount,
                                            uint64_t element) {
  std::vector<uint64_t> at(sizes.size());
  for (size_t i = sizes.size(); i-- > 0; element /= sizes[i])
    at[i] = element % sizes[i];
  uint64_t part = 0, local = 0, room = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    uint64_t width = (sizes[i] + counts[i] - 1) / counts[i];
    part = part * counts[i] + at[i] / width;
    local = local * width + at[i] % width;
    room *= width;
  }
  uint64_t width = (room + flatCount - 1) / flatCount;
  return {static_cast<uint32_t>(part * flatCount + local / width),
          local % width};
}

struct Case {
  const Mesh &mesh;
  std::vector<int64_t> view;
  std::vector<std::vector<uint32_t>> splits; // The last one is the flat split.
};

static flatbuffers::DetachedBuffer makeVariable(const Case &one) {
  VariableT variable;
  variable.name = "x";
  variable.shape = {1};
  for (int64_t size : one.view)
    variable.shape[0] *= size;
  variable.view = one.view;
  auto splits = one.splits;
  variable.flat = std::make_unique<SplitT>();
  variable.flat->axes = splits.back();
  splits.pop_back();
  variable.splits = makeSplits(splits);
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(CreateVariable(builder, &variable));
  return builder.Release();
}

static void checkCase(const Case &one) {
  flatbuffers::DetachedBuffer bytes = makeVariable(one);
  const auto &variable = *flatbuffers::GetRoot<Variable>(bytes.data());
  Tiling tiling(one.mesh, variable);
  std::vector<uint64_t> sizes(one.view.begin(), one.view.end()), counts;
  for (size_t i = 0; i < sizes.size(); ++i)
    counts.push_back(one.mesh.count(variable.splits()->Get(i)->axes()));
  uint64_t flatCount = one.mesh.count(variable.flat()->axes());
  uint64_t next = 0;
  std::set<std::pair<uint32_t, uint64_t>> taken;
  tiling.forEachRun(0, tiling.elements(), [&](const Tiling::Run &run) {
    ASSERT_EQ(run.whole, next);
    ASSERT_GT(run.count, 0u);
    next += run.count;
    for (uint64_t i = 0; i < run.count; ++i) {
      ASSERT_EQ(std::pair(run.part, run.local + i),
                locate(sizes, counts, flatCount, run.whole + i));
      ASSERT_LT(run.local + i, tiling.localElements());
      ASSERT_TRUE(taken.insert({run.part, run.local + i}).second);
    }
  });
  ASSERT_EQ(next, tiling.elements());
  EXPECT_EQ(tiling.isPadded(),
            taken.size() != tiling.parts() * tiling.localElements());
  // Every shard is some device's.
  std::set<uint32_t> held;
  for (uint32_t device = 0; device < one.mesh.devices(); ++device)
    held.insert(tiling.partOf(device));
  EXPECT_EQ(held.size(), tiling.parts());
  EXPECT_LT(*held.rbegin(), tiling.parts());
}

// Each element is in exactly one shard, at one offset, on every mesh and under
// every sharding, also where sizes do not divide and where shards are empty.
TEST(Tiling, PartsTileEveryTensorExactly) {
  for (auto [data, tensor] :
       {std::pair(1u, 1u), std::pair(2u, 1u), std::pair(2u, 2u),
        std::pair(3u, 2u), std::pair(2u, 4u), std::pair(1u, 8u)}) {
    IndexT index = emptyIndex(4096);
    setMesh(index, {{"data", data}, {"tensor", tensor}});
    Expected<Artifact> artifact = loadIndex(index);
    ASSERT_TRUE(artifact.ok()) << artifact.status().message();
    Mesh mesh(artifact->index());
    for (const std::vector<int64_t> &view : std::vector<std::vector<int64_t>>{
             {}, {1}, {7}, {8}, {3, 5}, {4, 6}, {1, 9}, {2, 3, 5}, {3, 1, 4}})
      for (const auto &splits : enumerateSplits(2, view.size() + 1))
        checkCase({mesh, view, splits});
  }
}

TEST(Tiling, GivesRunsOfARange) {
  IndexT index = emptyIndex(4096);
  setMesh(index, {{"data", 2}, {"tensor", 3}});
  Expected<Artifact> artifact = loadIndex(index);
  Mesh mesh(artifact->index());
  flatbuffers::DetachedBuffer bytes =
      makeVariable({mesh, {4, 10}, {{}, {1}, {0}}});
  Tiling tiling(mesh, *flatbuffers::GetRoot<Variable>(bytes.data()));
  std::vector<uint32_t> parts(tiling.elements());
  std::vector<uint64_t> places(tiling.elements());
  auto note = [&](const Tiling::Run &run) {
    for (uint64_t i = 0; i < run.count; ++i) {
      parts[run.whole + i] = run.part;
      places[run.whole + i] = run.local + i;
    }
  };
  tiling.forEachRun(0, tiling.elements(), note);
  auto wantedParts = parts;
  auto wantedPlaces = places;
  for (uint64_t begin = 0; begin < tiling.elements(); ++begin)
    for (uint64_t end = begin; end <= tiling.elements(); end += 3) {
      std::fill(parts.begin(), parts.end(), ~0u);
      tiling.forEachRun(begin, end, note);
      for (uint64_t i = 0; i < tiling.elements(); ++i)
        if (i >= begin && i < end) {
          ASSERT_EQ(parts[i], wantedParts[i]);
          ASSERT_EQ(places[i], wantedPlaces[i]);
        } else {
          ASSERT_EQ(parts[i], ~0u);
        }
    }
}

TEST(Mesh, GroupsDifferOnlyInTheirAxes) {
  IndexT index = emptyIndex(4096);
  setMesh(index, {{"data", 2}, {"tensor", 3}});
  Expected<Artifact> artifact = loadIndex(index);
  Mesh mesh(artifact->index());
  flatbuffers::FlatBufferBuilder builder;
  auto make = [&](std::vector<uint32_t> axes) {
    builder.Clear();
    builder.Finish(builder.CreateVector(axes));
    return flatbuffers::GetRoot<Axes>(builder.GetBufferPointer());
  };
  using Members = std::vector<uint32_t>;
  EXPECT_EQ(mesh.members(4, make({0})), (Members{1, 4}));
  EXPECT_EQ(mesh.members(4, make({1})), (Members{3, 4, 5}));
  EXPECT_EQ(mesh.members(4, make({0, 1})), (Members{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(mesh.members(4, make({1, 0})), (Members{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(mesh.members(4, make({})), (Members{4}));
}

} // namespace kiln::test
