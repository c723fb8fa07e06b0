// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Stall.h"
#include "runtime/collective/Patience.h"

#include <gtest/gtest.h>
#include <thread>

namespace kiln::test {

static Statement waitsFor(std::vector<uint32_t> ranks) {
  return {true, std::move(ranks), "sum"};
}

TEST(Stall, BlamesWhoIsAtTheEndOfTheChain) {
  Stall stall({{1}, {waitsFor({1}), waitsFor({2}), waitsFor({3}), {}}});
  EXPECT_TRUE(stall.hasMissing());
  EXPECT_EQ(stall.blame(rankName), "rank 3 has not come");
  EXPECT_EQ(stall.explain(), "rank 1, which waits for rank 2 in 'sum', which "
                             "waits for rank 3 in 'sum'");
}

TEST(Stall, BlamesAllThatAreAwaitedInVain) {
  Stall stall({{1, 2}, {waitsFor({1, 2}), {}, waitsFor({1, 3}), {}}});
  EXPECT_EQ(stall.blame(rankName), "rank 1 and rank 3 have not come");
  EXPECT_EQ(stall.explain(), "rank 1");
}

// A rank that computes and is not awaited does not answer either, but is not
// the cause.
TEST(Stall, OnlyMentionsWhoIsNotAwaited) {
  Stall stall({{1}, {waitsFor({1}), {}, {}, waitsFor({0})}});
  EXPECT_EQ(stall.blame(rankName), "rank 1 has not come");
  EXPECT_EQ(stall.explain(), "rank 1; rank 2 does not answer either");
}

TEST(Stall, SaysWhoWaitsForWhomInACircle) {
  Stall stall({{1}, {waitsFor({1}), waitsFor({2}), waitsFor({1})}});
  EXPECT_FALSE(stall.hasMissing());
  EXPECT_EQ(stall.blame(rankName), "all ranks answer, but none goes on");
  EXPECT_EQ(stall.explain(), "rank 1, which waits for rank 2 in 'sum', which "
                             "waits for rank 1 in 'sum'");
}

TEST(Stall, HasNobodyToBlameIfNobodyIsAwaited) {
  EXPECT_FALSE(Stall(Inquiry()).hasMissing());
}

// A stopped process, once woken, sees that other ranks timed out long ago.
TEST(Patience, DoesNotCountTimeWithoutALook) {
  Patience patience(2 * Patience::look);
  std::this_thread::sleep_for(3 * Patience::look);
  EXPECT_FALSE(patience.isOver());
  while (!patience.isOver())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

} // namespace kiln::test
