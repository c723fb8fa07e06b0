// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/thread/Team.h"

#include <gtest/gtest.h>

#include <alloca.h>
#include <csignal>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace kiln::test {

static std::unique_ptr<Team> startTeam(unsigned workers) {
  Expected<std::unique_ptr<Team>> team = Team::start(workers);
  EXPECT_TRUE(team.ok()) << team.status().message();
  return std::move(*team);
}

TEST(Team, RunsEveryWorkerOnce) {
  for (unsigned workers : {1u, 2u, 3u, 8u}) {
    std::unique_ptr<Team> team = startTeam(workers);
    ASSERT_EQ(team->workers(), workers);
    std::vector<int> calls(workers);
    std::thread::id caller = std::this_thread::get_id();
    auto body = [&](Worker worker) {
      ++calls[worker.index];
      EXPECT_EQ(worker.count, workers);
      EXPECT_EQ(worker.index == 0, std::this_thread::get_id() == caller);
    };
    for (int run = 1; run <= 300; ++run) {
      team->run(body);
      ASSERT_EQ(calls, std::vector<int>(workers, run));
    }
  }
}

TEST(Team, NoWorkersMeansOne) { EXPECT_EQ(startTeam(0)->workers(), 1u); }

// A worker that passed a meeting too early would read its neighbour's old
// value. There are more workers than cores, so that they also sleep.
TEST(Team, NobodyPassesAMeetingEarly) {
  for (unsigned workers : {1u, 2u, 3u, 5u, 8u}) {
    std::unique_ptr<Team> team = startTeam(workers);
    std::vector<int> rounds(workers);
    int early = 0;
    auto body = [&](Worker worker) {
      for (int round = 1; round <= 4000; ++round) {
        rounds[worker.index] = round;
        team->meet(worker);
        bool isEarly = rounds[(worker.index + 1) % worker.count] != round;
        if (isEarly)
          __atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
        team->meet(worker);
      }
    };
    team->run(body);
    EXPECT_EQ(early, 0) << workers;
  }
}

TEST(Team, SharesTileTheItems) {
  for (unsigned workers = 1; workers <= 8; ++workers) {
    std::unique_ptr<Team> team = startTeam(workers);
    for (int64_t items : {0, 1, 2, 7, 63, 64, 65, 1001}) {
      std::vector<int> calls(static_cast<size_t>(items));
      auto body = [&](Worker worker) {
        // Again and again, because pieces of the round before must not count.
        for (int round = 0; round < 20; ++round) {
          team->share(worker, items, [&](int64_t begin, int64_t end) {
            EXPECT_LT(begin, end);
            for (int64_t i = begin; i < end; ++i)
              ++calls[static_cast<size_t>(i)];
          });
          team->meet(worker);
        }
      };
      team->run(body);
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(items), 20))
          << workers << " workers";
    }
  }
}

// Every stage reads values that other workers wrote in the one before.
TEST(Team, ResultsDoNotDependOnTheNumberOfWorkers) {
  constexpr size_t items = 777;
  auto compute = [](unsigned workers) {
    std::unique_ptr<Team> team = startTeam(workers);
    std::vector<uint64_t> values(items), next(items);
    std::iota(values.begin(), values.end(), 1);
    auto body = [&](Worker worker) {
      for (int stage = 0; stage < 400; ++stage) {
        auto &from = stage % 2 ? next : values, &to = stage % 2 ? values : next;
        team->share(worker, items, [&](int64_t begin, int64_t end) {
          for (auto i = static_cast<size_t>(begin);
               i < static_cast<size_t>(end); ++i)
            to[i] = from[i] * 31 + from[items - 1 - i];
        });
        team->meet(worker);
      }
    };
    team->run(body);
    return values;
  };
  std::vector<uint64_t> wanted = compute(1);
  for (unsigned workers = 2; workers <= 8; ++workers)
    EXPECT_EQ(compute(workers), wanted) << workers << " workers";
}

// Work of a worker without a core is stolen: here all but one worker come late,
// and find the pieces of their shares taken.
TEST(Team, OthersTakeWhatALateWorkerHasNotBegun) {
  std::unique_ptr<Team> team = startTeam(2);
  std::atomic<int64_t> done{0};
  constexpr int64_t items = 1000;
  auto body = [&](Worker worker) {
    if (worker.index == 0)
      while (done != items)
        std::this_thread::yield();
    team->share(worker, items,
                [&](int64_t begin, int64_t end) { done += end - begin; });
  };
  team->run(body);
  EXPECT_EQ(done, items);
}

TEST(Team, StopsAndStartsAgain) {
  for (int round = 0; round < 200; ++round) {
    std::unique_ptr<Team> team = startTeam(1 + round % 8);
    std::atomic<unsigned> calls{0};
    auto body = [&](Worker) { ++calls; };
    if (round % 3 != 0) // Some never run.
      team->run(body);
    EXPECT_EQ(calls, round % 3 ? team->workers() : 0u);
  }
}

TEST(Team, TwoTeamsDoNotMeetEachOther) {
  std::unique_ptr<Team> one = startTeam(2), two = startTeam(3);
  std::atomic<int> calls{0};
  auto body = [&](Worker) { ++calls; };
  for (int run = 0; run < 100; ++run) {
    one->run(body);
    two->run(body);
  }
  EXPECT_EQ(calls, 500);
}

// Any thread may be worker 0, as long as runs do not overlap.
TEST(Team, TheCallerMayChange) {
  std::unique_ptr<Team> team = startTeam(3);
  std::atomic<int> calls{0};
  auto body = [&](Worker) { ++calls; };
  for (int run = 0; run < 20; ++run)
    std::thread([&] { team->run(body); }).join();
  EXPECT_EQ(calls, 60);
}

TEST(Team, ThreadsHaveNamesStacksAndNoSignals) {
  std::unique_ptr<Team> team = startTeam(2);
  auto body = [&](Worker worker) {
    if (worker.index == 0)
      return;
    char name[16];
    ASSERT_EQ(::pthread_getname_np(::pthread_self(), name, sizeof(name)), 0);
    EXPECT_EQ(std::string(name), "kiln-1");
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_TRUE(::sigismember(&blocked, SIGINT));
    EXPECT_TRUE(::sigismember(&blocked, SIGTERM));
    // Temporaries of the largest kernels.
    auto *temporary = static_cast<volatile char *>(::alloca(1 << 20));
    temporary[0] = 1;
    temporary[(1 << 20) - 1] = 1;
  };
  team->run(body);
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_FALSE(::sigismember(&blocked, SIGINT));
}

} // namespace kiln::test
