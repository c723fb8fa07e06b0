// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of a deep model is that of a shallow one with more of the same:
// from the commands of 3 and 4 layers follow those of any depth.
#include "test/compiler/shard/LoweredPlan.h"

#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

namespace kiln::test {
namespace {

using Lines = std::vector<std::string>;

/// Lines that a deeper model has before line `at` of a shallower one.
struct Insertion {
  size_t at;
  Lines lines;
};

/// The fewest insertions that turn `shallower` into `deeper`; none if there are
/// no such.
std::vector<Insertion> align(const Lines &shallower, const Lines &deeper) {
  const unsigned impossible = 1u << 30;
  size_t more = deeper.size() - shallower.size(), n = shallower.size();
  // cost[i][k][s]: insertions from line i of the shallower and i + k of the
  // deeper on, if the line before was a match (0) or inserted (1).
  std::vector<std::array<unsigned, 2>> cost((n + 1) * (more + 1));
  auto at = [&](size_t i, size_t k) -> std::array<unsigned, 2> & {
    return cost[i * (more + 1) + k];
  };
  auto matched = [&](size_t i, size_t k) {
    return i < n && shallower[i] == deeper[i + k] ? at(i + 1, k)[0]
                                                  : impossible;
  };
  auto inserted = [&](size_t i, size_t k, unsigned state) {
    return k < more ? at(i, k + 1)[1] + (state == 0) : impossible;
  };
  for (size_t i = n + 1; i-- > 0;)
    for (size_t k = more + 1; k-- > 0;)
      for (unsigned state : {0u, 1u})
        at(i, k)[state] =
            i == n && k == more
                ? 0
                : std::min({matched(i, k), inserted(i, k, state), impossible});
  std::vector<Insertion> insertions;
  if (at(0, 0)[0] >= impossible)
    return insertions;
  unsigned state = 0;
  for (size_t i = 0, k = 0; i < n || k < more;) {
    if (matched(i, k) == at(i, k)[state]) {
      ++i;
      state = 0;
      continue;
    }
    if (state == 0)
      insertions.push_back({i, {}});
    insertions.back().lines.push_back(deeper[i + k++]);
    state = 1;
  }
  return insertions;
}

Lines insert(const Lines &lines, const std::vector<Insertion> &insertions,
             unsigned times) {
  Lines made;
  auto next = insertions.begin();
  for (size_t i = 0; i <= lines.size(); ++i) {
    for (; next != insertions.end() && next->at == i; ++next)
      for (unsigned time = 0; time < times; ++time)
        made.insert(made.end(), next->lines.begin(), next->lines.end());
    if (i < lines.size())
      made.push_back(lines[i]);
  }
  return made;
}

struct Layout {
  const char *name;
  int data, tensor, zero;
  const char *recompute;
};

LoweredPlan lower(const Layout &layout, int layers, int hidden) {
  std::string width = std::to_string(hidden);
  return LoweredPlan(
      "model: {kind: gpt, layers: " + std::to_string(layers) +
          ", hidden: " + width +
          ", heads: 8, sequence: 32, vocabulary: 64}\n"
          "training: {steps: 1, global_batch: 16, clip_norm: 1}\n"
          "data: {kind: none}\n",
      {"devices.count=" + std::to_string(layout.data * layout.tensor),
       "devices.mesh={data: " + std::to_string(layout.data) +
           ", tensor: " + std::to_string(layout.tensor) + "}",
       "devices.zero=" + std::to_string(layout.zero),
       std::string("devices.recompute=") + layout.recompute});
}

class Depth : public testing::TestWithParam<Layout> {};

// Layers 768 wide have several buckets each; those 32 wide have one each.
TEST_P(Depth, AddsMoreOfTheSameCollectives) {
  for (int hidden : {32, 768}) {
    Lines three = lower(GetParam(), 3, hidden).describeCollectives(),
          four = lower(GetParam(), 4, hidden).describeCollectives();
    ASSERT_GT(four.size(), three.size());
    std::vector<Insertion> layer = align(three, four);
    ASSERT_FALSE(layer.empty())
        << "four layers lack a collective of three: of three are\n  "
        << llvm::join(three, "\n  ") << "\nand of four\n  "
        << llvm::join(four, "\n  ");
    for (int layers : {5, 8})
      EXPECT_EQ(lower(GetParam(), layers, hidden).describeCollectives(),
                insert(three, layer, layers - 3))
          << hidden << " wide, " << layers << " layers";
  }
}

TEST_P(Depth, GathersNothingTwiceInOnePass) {
  LoweredPlan plan = lower(GetParam(), 3, 32);
  if (std::string(GetParam().recompute) == "full")
    EXPECT_EQ(plan.countRepeatedGathers(), 0u);
  EXPECT_EQ(plan.countGathers() > 0, GetParam().tensor > 1);
  EXPECT_EQ(plan.countGathersOfOneParameter(), GetParam().zero == 3 ? 2u : 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Depth,
    testing::Values(
        Layout{"data", 4, 1, 0, "none"}, Layout{"tensor", 1, 4, 0, "none"},
        Layout{"zero1", 4, 1, 1, "none"}, Layout{"zero2", 4, 1, 2, "none"},
        Layout{"zero3", 4, 1, 3, "none"}, Layout{"recompute", 4, 1, 0, "full"},
        Layout{"tensor8_recompute", 1, 8, 0, "full"},
        Layout{"mesh_zero3_recompute", 2, 2, 3, "full"},
        Layout{"mesh_zero2_attention", 2, 2, 2, "attention"}),
    [](const testing::TestParamInfo<Layout> &info) { return info.param.name; });

} // namespace
} // namespace kiln::test
