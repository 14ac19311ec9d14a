// Cores and memory of made-up machines: folders in the place of /proc and /sys.
#include "framework/base/machine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace brim {
namespace {

class MadeUpMachine : public ::testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    brim::testing::put_content(root_ / file, text + "\n");
  }

  brim::testing::TemporaryFolder root_;
  Machine machine_{root_.path()};
};

TEST_F(MadeUpMachine, WithoutQuotaAllAllowedCoresCount) {
  EXPECT_EQ(machine_.allowed_cores(), std::thread::hardware_concurrency());
  EXPECT_EQ(machine_.usable_cores(), machine_.allowed_cores());
  put("proc/self/cgroup", "0::/job");
  put("sys/fs/cgroup/job/cpu.max", "max 100000");
  EXPECT_EQ(machine_.core_quota(), std::nullopt);
  EXPECT_EQ(machine_.usable_cores(), machine_.allowed_cores());
}

TEST_F(MadeUpMachine, TheSmallestQuotaOnTheWayUpCounts) {
  put("proc/self/cgroup", "0::/job/step");
  put("sys/fs/cgroup/job/cpu.max", "150000 100000");
  put("sys/fs/cgroup/job/step/cpu.max", "9900000 100000");
  EXPECT_EQ(machine_.core_quota(), 1.5);
  EXPECT_EQ(machine_.usable_cores(), 1);
}

TEST_F(MadeUpMachine, QuotaOfTheFirstKindOfCgroups) {
  put("proc/self/cgroup", "5:memory:/x\n3:cpu,cpuacct:/docker/abc");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(machine_.core_quota(), 0.5);
  EXPECT_EQ(machine_.usable_cores(), 1);
}

TEST_F(MadeUpMachine, TheSmallestMemoryLimitOnTheWayUpCounts) {
  put("proc/self/cgroup", "0::/jobs/mine");
  put("sys/fs/cgroup/jobs/mine/memory.max", "max");
  EXPECT_EQ(machine_.memory_limit_bytes(), std::nullopt);
  put("sys/fs/cgroup/jobs/memory.max", "8000000000");
  EXPECT_EQ(machine_.memory_limit_bytes(), 8'000'000'000);
  put("sys/fs/cgroup/memory.max", "4000000000");
  EXPECT_EQ(machine_.memory_limit_bytes(), 4'000'000'000);
}

TEST_F(MadeUpMachine, MemoryLimitOfTheFirstKindOfCgroups) {
  put("proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/abc\n0::/");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648");  // a container's own group
  EXPECT_EQ(machine_.memory_limit_bytes(), int64_t{1} << 31);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // "no limit"
  EXPECT_EQ(machine_.memory_limit_bytes(), std::nullopt);
}

TEST_F(MadeUpMachine, NoCgroupsAndNonsenseAreNoLimit) {
  EXPECT_EQ(machine_.memory_limit_bytes(), std::nullopt);
  put("proc/self/cgroup", "nonsense\n0::");
  put("sys/fs/cgroup/memory.max", "-5");
  EXPECT_EQ(machine_.memory_limit_bytes(), std::nullopt);
  EXPECT_EQ(machine_.core_quota(), std::nullopt);
}

TEST_F(MadeUpMachine, FreeMemoryIsWhatTheTightestGroupLeaves) {
  put("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 100 kB\nMemAvailable:   6000 kB");
  EXPECT_EQ(machine_.memory_bytes(), 8000 * 1024);
  EXPECT_EQ(machine_.free_memory_bytes(), 6000 * 1024);
  put("proc/self/cgroup", "0::/job");
  put("sys/fs/cgroup/job/memory.max", "5000000");
  put("sys/fs/cgroup/job/memory.current", "3000000");
  EXPECT_EQ(machine_.free_memory_bytes(), 2'000'000);
  put("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 1000000");
  EXPECT_EQ(machine_.free_memory_bytes(), 3'000'000);
  put("sys/fs/cgroup/job/memory.current", "7000000");  // over its limit, for a moment
  EXPECT_EQ(machine_.free_memory_bytes(), 0);
}

TEST_F(MadeUpMachine, RunDelayIsThatOfAllThreads) {
  EXPECT_EQ(machine_.run_delay_s(), 0);
  put("proc/self/task/7/schedstat", "9000000000 1500000000 12\n");
  put("proc/self/task/8/schedstat", "1000000000 250000000 3\n");
  put("proc/self/task/9/schedstat", "nonsense\n");
  EXPECT_DOUBLE_EQ(machine_.run_delay_s(), 1.75);
}

TEST_F(MadeUpMachine, RunDelayOfNicerThreadsIsLeftOut) {
  const auto thread = [&](const std::string& id, const std::string& name, int nice) {
    put("proc/self/task/" + id + "/schedstat", "9000000000 " + id + "000000000 12\n");
    put("proc/self/task/" + id + "/stat",
        fmt::format("{} ({}) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 {} 3 0 100\n", id, name, nice));
  };
  thread("1", "trainer", 5);
  thread("2", "a) R (b", 5);
  thread("4", "loader", 15);
  EXPECT_DOUBLE_EQ(machine_.run_delay_s(), 3);
  thread("8", "urgent", -3);
  EXPECT_DOUBLE_EQ(machine_.run_delay_s(), 8);
}

TEST_F(MadeUpMachine, LinesComeWithoutBlanks) {
  put("sys/a", "  performance \t");
  EXPECT_EQ(machine_.line("sys/a"), "performance");
  EXPECT_EQ(machine_.line("sys/b"), std::nullopt);
}

TEST(ThisMachine, HasMemory) {
  EXPECT_GT(Machine().memory_bytes(), int64_t{1} << 28);
  EXPECT_GT(Machine().free_memory_bytes(), 0);
  EXPECT_LE(Machine().free_memory_bytes(), Machine().memory_bytes());
}

}  // namespace
}  // namespace brim
