// What else continues on a machine while a run is measured, on one that is made up.
#include "framework/experiment/bench/surroundings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.h"

namespace brim::experiment {
namespace {

class Watched : public ::testing::Test {
 protected:
  Watched() {
    put("proc/cpuinfo", "model name : X\ncpu MHz : 2000.0\ncpu MHz : 3000.0\n");
    put_times(1000, 10);
    put("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "5\n");
    put("sys/fs/cgroup/cpu.stat", "usage_usec 9\nthrottled_usec 1000000\n");
  }
  void put(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    brim::testing::put_content(root_ / file, text);
  }
  /// Seconds of all processor time, and what a host took away.
  void put_times(int busy_s, int stolen_s) const {
    const long hz = ::sysconf(_SC_CLK_TCK);
    put("proc/stat", "cpu  " + std::to_string(busy_s * hz) + " 0 0 77 88 0 0 " +
                         std::to_string(stolen_s * hz) + " 0 0\n");
  }

  brim::testing::TemporaryFolder root_;
};

TEST_F(Watched, WhatOthersTookIsAllButTheRunsOwn) {
  Watch watch{Machine(root_.path())};
  put_times(1400, 110);
  const nlohmann::json found = watch.finish(/*own_cpu_s=*/100);
  // Both are divided by the same time, which the test doesn't know.
  const auto others = found["others_cores"].get<double>();
  EXPECT_NEAR(others / found["stolen_cores"].get<double>(), 3.0, 0.05);
  EXPECT_EQ(found["cpu_mhz"], 2500.0);
}

TEST_F(Watched, ARunThatTookAllLeavesNothingToOthers) {
  Watch watch{Machine(root_.path())};
  put_times(1100, 10);
  const nlohmann::json found = watch.finish(/*own_cpu_s=*/200);
  EXPECT_EQ(found["others_cores"], 0.0);
  EXPECT_EQ(found["stolen_cores"], 0.0);
}

TEST_F(Watched, HeatAndQuotaAreCountedFromTheStart) {
  Watch watch{Machine(root_.path())};
  put("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "7\n");
  put("sys/fs/cgroup/cpu.stat", "usage_usec 9\nthrottled_usec 3500000\n");
  const nlohmann::json found = watch.finish(0);
  EXPECT_EQ(found["heat_throttles"], 2.0);
  EXPECT_NEAR(found["quota_throttled_s"].get<double>(), 2.5, 1e-9);
}

TEST_F(Watched, WhatCannotBeReadIsLeftOut) {
  const brim::testing::TemporaryFolder empty;
  Watch watch{Machine(empty.path())};
  const nlohmann::json found = watch.finish(1);
  for (const char* name : {"others_cores", "cpu_mhz", "heat_throttles", "quota_throttled_s"}) {
    EXPECT_FALSE(found.contains(name)) << name;
  }
  put("proc/stat", "cpu nonsense\n");
  Watch other{Machine(root_.path())};
  EXPECT_FALSE(other.finish(1).contains("others_cores"));
}

}  // namespace
}  // namespace brim::experiment
