// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/AvailableMemory.h"
#include "test/runtime/SampleArtifact.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace kiln::test {
namespace {

class AvailableMemory : public testing::Test {
protected:
  AvailableMemory() {
    write("/proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:   8000 kB\n");
  }

  void write(const std::string &path, const std::string &text) {
    std::string place = folder.path() + path;
    std::filesystem::create_directories(
        std::filesystem::path(place).parent_path());
    writeFile(place, text);
  }

  uint64_t get() { return cpu::availableMemory(folder.path()); }

  TemporaryFolder folder;
};

TEST_F(AvailableMemory, IsThatOfTheMachineWithoutGroups) {
  EXPECT_EQ(get(), 8000u * 1024);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(get(), 8000u * 1024);
}

// A slice around the process's own group may have less memory left.
TEST_F(AvailableMemory, IsTheLeastOfAllGroupsAroundTheProcess) {
  write("/proc/self/cgroup", "0::/user.slice/job\n");
  write("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  write("/sys/fs/cgroup/user.slice/job/memory.current", "500000\n");
  EXPECT_EQ(get(), 8000u * 1024);
  write("/sys/fs/cgroup/user.slice/memory.max", "3000000\n");
  write("/sys/fs/cgroup/user.slice/memory.current", "2000000\n");
  EXPECT_EQ(get(), 1000000u);
  write("/sys/fs/cgroup/user.slice/job/memory.max", "700000\n");
  EXPECT_EQ(get(), 200000u);
}

// Data files that were read stay in memory until it is needed.
TEST_F(AvailableMemory, CountsFilesThatCanBeDropped) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "3000000\n");
  write("/sys/fs/cgroup/memory.current", "2900000\n");
  write("/sys/fs/cgroup/memory.stat",
        "anon 100000\ninactive_file 2500000\nactive_file 300000\n");
  EXPECT_EQ(get(), 2600000u);
}

TEST_F(AvailableMemory, KnowsBothVersionsOfGroups) {
  write("/proc/self/cgroup", "4:cpu,memory:/docker/1\n0::/\n");
  write("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "5000000\n");
  write("/sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "4500000\n");
  write("/sys/fs/cgroup/memory/docker/1/memory.stat",
        "inactive_file 1\ntotal_inactive_file 1500000\n");
  EXPECT_EQ(get(), 2000000u);
  // Without a limit the number is a large one.
  write("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
        "9223372036854771712\n");
  EXPECT_EQ(get(), 8000u * 1024);
}

} // namespace
} // namespace kiln::test
