#include "framework/telemetry/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/telemetry/temporary_folder.h"

namespace brim::telemetry {
namespace {

using brim::testing::put_content;
using brim::testing::TemporaryFolder;
using nlohmann::json;

TEST(RunRecord, HoldsWhatMakesARunUnderstandable) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  ::unsetenv("SLURM_JOB_ID");
  const json record = run_record({.command = {"trainer", "--recipe", "x.toml"},
                                  .libtorch = "2.11.0",
                                  .device = "cpu",
                                  .seed = 42});
  EXPECT_EQ(record["versions"]["brim"], brim_version());
  EXPECT_THAT(brim_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_NE(brim_commit(), "");
  EXPECT_EQ(record["versions"]["libtorch"], "2.11.0");
  EXPECT_EQ(record["command"], json({"trainer", "--recipe", "x.toml"}));
  EXPECT_EQ(record["environment"]["OMP_NUM_THREADS"], "7");
  EXPECT_FALSE(record["environment"].contains("SLURM_JOB_ID"));
  EXPECT_EQ(record["seed"], 42);
  EXPECT_EQ(record["device"], "cpu");
  EXPECT_EQ(record["working_folder"], std::filesystem::current_path().string());
  EXPECT_THAT(record["started"].get<std::string>(), ::testing::StartsWith("20"));
}

TEST(RunRecord, DescribesTheMachine) {
  const json machine = machine_record();
  EXPECT_EQ(machine["cores"], std::thread::hardware_concurrency());
  EXPECT_GT(machine["memory_bytes"], 1 << 28);
  for (const char* key : {"host", "os", "kernel", "cpu"}) {
    EXPECT_THAT(machine[key].get<std::string>(), ::testing::Not(::testing::IsEmpty())) << key;
  }
  EXPECT_THAT(machine["kernel"].get<std::string>(), ::testing::StartsWith("Linux "));
}

class CgroupLimit : public ::testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    put_content(root_ / file, text);
  }
  int64_t limit() const { return cgroup_memory_limit_bytes(root_.path()); }
  TemporaryFolder root_;
};

TEST_F(CgroupLimit, IsTheSmallestOnTheWayUp) {
  put("proc/self/cgroup", "0::/jobs/mine\n");
  put("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  EXPECT_EQ(limit(), -1);
  put("sys/fs/cgroup/jobs/memory.max", "8000000000\n");
  EXPECT_EQ(limit(), 8'000'000'000);
  put("sys/fs/cgroup/memory.max", "4000000000\n");
  EXPECT_EQ(limit(), 4'000'000'000);
}

TEST_F(CgroupLimit, IsReadFromVersionOneToo) {
  put("proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/abc\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");  // a container's own group
  EXPECT_EQ(limit(), int64_t{1} << 31);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // "no limit"
  EXPECT_EQ(limit(), -1);
}

TEST_F(CgroupLimit, IsAbsentWithoutCgroupsAndInNonsense) {
  EXPECT_EQ(limit(), -1);
  put("proc/self/cgroup", "nonsense\n0::\n");
  put("sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_EQ(limit(), -1);
}

}  // namespace
}  // namespace brim::telemetry
