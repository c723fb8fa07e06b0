// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/plan/ShareBatch.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace kiln::test {
namespace {

using testing::ElementsAre;

std::vector<int64_t> share(int64_t batch, int64_t replicas,
                           const std::vector<double> &speeds = {},
                           int64_t group = 1) {
  std::string error;
  return shareBatch(batch, replicas, speeds, group, error).value();
}

TEST(ShareBatch, FollowsTheSpeeds) {
  EXPECT_THAT(share(12, 3, {3, 2, 1}), ElementsAre(6, 4, 2));
  EXPECT_THAT(share(12, 1), ElementsAre(12));
  EXPECT_THAT(share(10, 4), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(share(10, 2, {1, 2}), ElementsAre(3, 7));
  EXPECT_THAT(share(96, 2, {1, 2}, 16), ElementsAre(32, 64));
}

TEST(ShareBatch, NoReplicaIsIdle) {
  EXPECT_THAT(share(4, 4, {1000, 1, 1, 1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(share(10, 3, {1e308, 1e308, 1e-320}), ElementsAre(5, 4, 1));
  // Giving the last one its sample puts the middle one below one too.
  EXPECT_THAT(share(4, 3, {8, 3.9, 0.1}), ElementsAre(2, 1, 1));
}

TEST(ShareBatch, SaysWhyNot) {
  std::string error;
  EXPECT_FALSE(shareBatch(3, 4, {}, 1, error));
  EXPECT_EQ(error, "3 samples are too few for 4 replicas");
  EXPECT_FALSE(shareBatch(64, 3, {}, 32, error));
  EXPECT_EQ(error, "64 samples, 2 groups of 32 that batch norm takes together, "
                   "are too few for 3 replicas");
  EXPECT_FALSE(shareBatch(48, 2, {}, 32, error));
  EXPECT_EQ(error, "48 samples are not whole groups of 32");
}

// As many as a plan can have; quadratic time would be a minute.
TEST(ShareBatch, ServesManyReplicas) {
  constexpr int64_t replicas = 65536;
  std::vector<double> speeds(replicas);
  for (int64_t i = 0; i < replicas; ++i)
    speeds[i] = i % 2 ? 1.0 : 1e-6 * double(i + 1);
  std::vector<int64_t> shares = share(8 * replicas, replicas, speeds);
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t(0)),
            8 * replicas);
  EXPECT_EQ(*std::min_element(shares.begin(), shares.end()), 1);
  EXPECT_EQ(shares.front(), 1);
  EXPECT_GE(shares.back(), 15);
  shares = share(replicas + 1, replicas);
  EXPECT_EQ(shares.front(), 2);
  EXPECT_EQ(shares.back(), 1);
}

TEST(ShareBatch, HoldsForAnyDraw) {
  std::mt19937 random(5);
  auto below = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
  };
  for (int draw = 0; draw < 5000; ++draw) {
    int64_t replicas = 1 + below(64), group = 1 + below(9);
    int64_t units = replicas + below(500);
    std::vector<double> speeds(replicas);
    for (double &speed : speeds)
      speed = std::exp(std::normal_distribution<>(0, draw % 5)(random));
    if (draw % 3 == 0)
      std::fill(speeds.begin(), speeds.end(), 0.1);
    std::vector<int64_t> shares = share(units * group, replicas, speeds, group);
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t(0)),
              units * group);
    double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    for (int64_t i = 0; i < replicas; ++i) {
      ASSERT_EQ(shares[i] % group, 0);
      ASSERT_GE(shares[i], group);
      // No replica exceeds its proportion by a full group, except by the rule
      // that none is idle.
      double ideal = static_cast<double>(units) * speeds[i] / sum;
      ASSERT_LT(static_cast<double>(shares[i] / group),
                std::max(ideal, 1.0) + 1 + 1e-9);
      for (int64_t j = 0; j < replicas; ++j)
        ASSERT_TRUE(speeds[i] <= speeds[j] || shares[i] >= shares[j])
            << "a faster replica has less";
    }
  }
}

} // namespace
} // namespace kiln::test
