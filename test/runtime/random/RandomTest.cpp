// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/random/Permutation.h"
#include "runtime/random/Philox.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace kiln::test {

using namespace artifact;

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                   {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Permutation, IsABijection) {
  for (uint64_t size = 1; size <= 300; ++size)
    for (uint64_t epoch : {0, 1}) {
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) {
        uint64_t to = permute(42, epoch, i, size);
        ASSERT_LT(to, size);
        seen.insert(to);
      }
      ASSERT_EQ(seen.size(), size);
    }
}

TEST(Permutation, DependsOnSeedAndEpochAlone) {
  auto order = [](uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> result;
    for (uint64_t i = 0; i < 100; ++i)
      result.push_back(permute(seed, epoch, i, 100));
    return result;
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
  EXPECT_NE(order(1, 2), order(2, 2));
  EXPECT_NE(order(1, 0), order(1, uint64_t{1} << 32));
  EXPECT_NE(order(1, 0), order(uint64_t{1} << 32 | 1, 0));
}

// A weak round function leaves neighbours together.
TEST(Permutation, Shuffles) {
  int near = 0;
  for (uint64_t i = 0; i + 1 < 10000; ++i) {
    auto here = static_cast<int64_t>(permute(0, 0, i, 10000));
    auto next = static_cast<int64_t>(permute(0, 0, i + 1, 10000));
    near += std::abs(here - next) <= 10;
  }
  EXPECT_LT(near, 50); // 20 expected.
}

static std::vector<float> initialised(const std::string &name, InitKind kind,
                                      double a, double b, uint64_t seed,
                                      unsigned threads = 2) {
  IndexT index = emptyIndex(1 << 20, threads);
  addVariable(index, name, ElementType::f32, {10001}, 64, kind, a, b);
  addProgram(index, "train");
  Session session = openSession(index);
  EXPECT_TRUE(session.initialise(seed).ok());
  std::vector<float> values(10001);
  EXPECT_TRUE(
      session.readVariable(name, std::as_writable_bytes(std::span(values)))
          .ok());
  return values;
}

TEST(Initialise, IsAFunctionOfSeedNameAndIndex) {
  auto first = initialised("w", InitKind::normal, 0, 1, 3);
  EXPECT_EQ(first, initialised("w", InitKind::normal, 0, 1, 3));
  EXPECT_EQ(first, initialised("w", InitKind::normal, 0, 1, 3, 1));
  EXPECT_EQ(first, initialised("w", InitKind::normal, 0, 1, 3, 5));
  EXPECT_NE(first, initialised("v", InitKind::normal, 0, 1, 3));
  EXPECT_NE(first, initialised("w", InitKind::normal, 0, 1, 4));
}

TEST(Initialise, HasTheMomentsAskedFor) {
  auto normal = initialised("w", InitKind::normal, 2, 0.5, 0);
  double sum = 0, squares = 0;
  for (float value : normal) {
    sum += value;
    squares += (value - 2.0) * (value - 2.0);
  }
  EXPECT_NEAR(sum / normal.size(), 2, 0.02);
  EXPECT_NEAR(std::sqrt(squares / normal.size()), 0.5, 0.02);
  auto uniform = initialised("w", InitKind::uniform, -3, 1, 0);
  auto [low, high] = std::minmax_element(uniform.begin(), uniform.end());
  EXPECT_GE(*low, -3);
  EXPECT_LT(*low, -2.9);
  EXPECT_LE(*high, 1);
  EXPECT_GT(*high, 0.9);
}

TEST(Initialise, WritesConstantsOfEveryType) {
  IndexT index = emptyIndex(4096);
  addVariable(index, "d", ElementType::f64, {2}, 0, InitKind::constant, 0.1);
  addVariable(index, "i", ElementType::i32, {2}, 64, InitKind::constant, -7);
  addVariable(index, "l", ElementType::i64, {1}, 128, InitKind::ones);
  addVariable(index, "b", ElementType::i1, {3}, 192, InitKind::ones);
  addProgram(index, "train");
  Session session = openSession(index);
  ASSERT_TRUE(session.initialise(0).ok());
  auto read = [&](const char *name, auto &values) {
    EXPECT_TRUE(
        session.readVariable(name, std::as_writable_bytes(std::span(values)))
            .ok());
  };
  double d[2];
  int32_t i[2];
  int64_t l[1];
  uint8_t b[3];
  read("d", d);
  read("i", i);
  read("l", l);
  read("b", b);
  EXPECT_EQ(d[1], 0.1);
  EXPECT_EQ(i[1], -7);
  EXPECT_EQ(l[0], 1);
  EXPECT_EQ(b[2], 1);
}

} // namespace kiln::test
