// Each check of `trainer doctor` on machines that are made up: what passes, warns and fails.
#include "framework/doctor/environment/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "framework/doctor/environment/environment.h"
#include "tests/support/temporary_folder.h"

namespace brim::doctor::environment {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

class EnvironmentCheck : public ::testing::Test {
 protected:
  EnvironmentCheck() {
    s_.machine = Machine(root_.path());
    s_.software.libtorch = "2.11.0";
    put("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 12000000 kB");
  }

  void put(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    brim::testing::put_content(root_ / file, text + "\n");
  }
  void add_gpus(int count) {
    for (int i = 0; i < count; ++i) {
      device::GpuReading gpu;
      gpu.index = static_cast<int>(s_.gpus.size());
      gpu.uuid = "GPU-" + std::to_string(gpu.index);
      s_.gpus.push_back(gpu);
    }
  }
  void expect_nothing(CheckFunction check) { EXPECT_FALSE(check(s_).has_value()); }
  void expect(CheckFunction check, Health health, const std::string& found) {
    const std::optional<CheckResult> finding = check(s_);
    ASSERT_TRUE(finding.has_value());
    EXPECT_EQ(finding->health, health) << finding->found;
    EXPECT_THAT(finding->found, HasSubstr(found));
    EXPECT_EQ(finding->advice.empty(), health == Health::kPass) << finding->advice;
  }

  brim::testing::TemporaryFolder root_;
  Surroundings s_;
};

TEST_F(EnvironmentCheck, Driver) {
  s_.why_no_nvml = "the library is not here";
  expect(check_driver, Health::kPass, "no NVIDIA driver");
  put("dev/nvidia0", "");
  expect(check_driver, Health::kFail, "the kernel has an NVIDIA driver, but the library is not");
  s_.why_no_nvml = "";
  s_.driver = "570.10";
  s_.driver_cuda = "12.8";
  expect(check_driver, Health::kFail, "570.10, serves CUDA up to 12.8");
  s_.driver_cuda = "13.0";
  expect(check_driver, Health::kPass, "13.0");
  s_.driver_cuda = "";
  expect(check_driver, Health::kPass, "?");
}

TEST_F(EnvironmentCheck, Cuda) {
  expect_nothing(check_cuda);
  add_gpus(1);
  s_.software.why_no_cuda = "this build has no CUDA half";
  expect(check_cuda, Health::kFail, "no CUDA half");
  s_.cuda_visible_devices = "";  // hidden on purpose
  expect_nothing(check_cuda);
  s_.cuda_visible_devices.reset();
  s_.software.why_no_cuda = "";
  s_.software.cuda_runtime = "13.0";
  expect(check_cuda, Health::kPass, "runtime 13.0");
}

TEST_F(EnvironmentCheck, Libraries) {
  expect(check_libtorch, Health::kPass, "2.11.0");
  s_.software.libtorch = "2.10.1";
  expect(check_libtorch, Health::kWarn, "2.10.1");
  expect_nothing(check_cudnn);
  expect_nothing(check_nccl);
  add_gpus(1);
  expect(check_cudnn, Health::kWarn, "libcudnn.so.9");
  expect(check_nccl, Health::kWarn, "libnccl.so.2");
  add_gpus(1);
  expect(check_nccl, Health::kFail, "libnccl.so.2");
  s_.software.cudnn = "9.15.1";
  s_.software.nccl = "2.28.9";
  expect(check_cudnn, Health::kPass, "9.15.1");
  expect(check_nccl, Health::kPass, "2.28.9");
}

TEST_F(EnvironmentCheck, Architectures) {
  s_.software.architectures = "80-real 90-real";
  expect_nothing(check_architectures);
  add_gpus(2);
  s_.gpus[0].compute_capability = 89;  // runs code for 8.0
  expect(check_architectures, Health::kPass, "80-real");
  s_.gpus[1].compute_capability = 100;
  expect(check_architectures, Health::kFail, "GPU 1 has compute capability 10.0");
  s_.software.architectures += " 90-virtual";  // PTX
  expect(check_architectures, Health::kPass, "90-virtual");
  s_.gpus[0].compute_capability = 75;
  expect(check_architectures, Health::kFail, "GPU 0 has compute capability 7.5");
}

TEST_F(EnvironmentCheck, VisibleDevices) {
  expect_nothing(check_visible_devices);
  add_gpus(3);
  expect(check_visible_devices, Health::kPass, "all 3");
  for (const char* list : {"", "-1", "0,2", "GPU-1"}) {
    s_.cuda_visible_devices = list;
    expect(check_visible_devices, Health::kPass, "of 3");
  }
  for (const char* list : {"0,7,1", "all", "0,0", "GPU-"}) {
    s_.cuda_visible_devices = list;
    expect(check_visible_devices, Health::kWarn, std::string("CUDA_VISIBLE_DEVICES=") + list);
  }
}

TEST_F(EnvironmentCheck, GpuHealth) {
  expect_nothing(check_gpu_health);
  add_gpus(2);
  expect(check_gpu_health, Health::kPass, "2 in order");
  s_.gpus[0].is_slowed = true;
  s_.gpus[0].throttle = {"heat (hardware)"};
  expect(check_gpu_health, Health::kWarn, "GPU 0: clocks held by heat (hardware)");
  s_.gpus[1].ecc_uncorrected = 2;
  expect(check_gpu_health, Health::kFail, "GPU 1: 2 memory errors");
  s_.gpus[0].trouble = "lost: gone";
  expect(check_gpu_health, Health::kFail, "GPU 0: lost");
}

TEST_F(EnvironmentCheck, PersistenceAndPcie) {
  expect_nothing(check_persistence);
  expect_nothing(check_pcie);
  add_gpus(1);
  expect(check_persistence, Health::kPass, "");
  expect(check_pcie, Health::kPass, "");
  s_.gpus[0].persistence = false;
  s_.gpus[0].pcie_width = 8;
  s_.gpus[0].max_pcie_width = 16;
  expect(check_persistence, Health::kWarn, "off on GPU 0");
  expect(check_pcie, Health::kWarn, "GPU 0 has 8 of 16 lanes");
}

TEST_F(EnvironmentCheck, Numa) {
  put("sys/devices/system/node/node0/cpulist", "0-3");
  put("sys/devices/system/node/possible", "0");
  expect(check_numa, Health::kPass, "one node");
  put("sys/devices/system/node/node1/cpulist", "4-7");
  add_gpus(1);
  s_.gpus[0].bus = "00000000:3B:00.0";
  put("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1");
  expect(check_numa, Health::kWarn, "2 nodes, GPU 0 at node 1");
}

TEST_F(EnvironmentCheck, Limits) {
  expect(check_open_files, Health::kPass, "no limit");
  put("proc/self/limits",
      "Limit                     Soft Limit           Hard Limit           Units\n"
      "Max open files            1024                 1048576              files\n"
      "Max locked memory         8388608              8388608              bytes");
  expect(check_open_files, Health::kWarn, "1,024");
  expect(check_locked_memory, Health::kPass, "8.0 MiB; no RDMA");
  put("sys/class/infiniband/mlx5_0/node_type", "1");
  expect(check_locked_memory, Health::kWarn, "8.0 MiB, and there is an RDMA card");
  put("proc/self/limits",
      "Max open files            unlimited            unlimited            files\n"
      "Max locked memory         unlimited            unlimited            bytes");
  expect(check_open_files, Health::kPass, "no limit");
  expect(check_locked_memory, Health::kPass, "no limit");
}

TEST_F(EnvironmentCheck, SharedMemoryAndDisk) {
  expect(check_shared_memory, Health::kWarn, "no /dev/shm");
  s_.shared_memory = Space{.total_bytes = 64 << 20, .free_bytes = 64 << 20};
  expect(check_shared_memory, Health::kPass, "64.0 MiB");
  add_gpus(2);
  expect(check_shared_memory, Health::kWarn, "64.0 MiB free of 64.0 MiB");
  expect(check_disk, Health::kWarn, "cannot be looked at");
  s_.disk = Space{.total_bytes = 100 * kGiB, .free_bytes = 20 * kGiB};
  expect(check_disk, Health::kPass, "20.0 GiB free of 100.0 GiB");
  s_.disk->free_bytes = 5 * kGiB;
  expect(check_disk, Health::kWarn, "5.0 GiB");
  s_.disk->free_bytes = kGiB / 2;
  expect(check_disk, Health::kFail, "512.0 MiB");
}

TEST_F(EnvironmentCheck, GovernorAndHugePages) {
  expect(check_governor, Health::kPass, "");
  const std::string governor = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
  put(governor, "performance");
  expect(check_governor, Health::kPass, "performance");
  put(governor, "powersave");
  expect(check_governor, Health::kWarn, "powersave");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  expect(check_huge_pages, Health::kPass, "[madvise]");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  expect(check_huge_pages, Health::kWarn, "[never]");
}

TEST_F(EnvironmentCheck, Container) {
  expect(check_container, Health::kPass, "11.4 GiB free of 15.3 GiB");
  put("proc/self/cgroup", "0::/job");
  put("sys/fs/cgroup/job/cpu.max", "50000 100000");
  expect(check_container, Health::kWarn, "1 of ");
  put("sys/fs/cgroup/job/memory.max", "500000000");
  expect(check_container, Health::kWarn, "476.8 MiB free of 476.8 MiB");
}

TEST_F(EnvironmentCheck, SwapAndLoad) {
  expect(check_swap, Health::kPass, "none");
  put("proc/meminfo", "MemTotal: 16000000 kB\nSwapTotal: 8000000 kB\nSwapFree: 7900000 kB");
  expect(check_swap, Health::kPass, "97.7 MiB used");
  put("proc/meminfo", "MemTotal: 16000000 kB\nSwapTotal: 8000000 kB\nSwapFree: 4000000 kB");
  expect(check_swap, Health::kWarn, "3.8 GiB used of 7.6 GiB");
  put("proc/loadavg", "0.10 0.20 0.30 1/100 5");
  expect(check_load, Health::kPass, "0.1 wanted");
  expect(check_load, Health::kPass, "spin, on shared cores only while steps are faster so");
  s_.wait_policy = "OMP_WAIT_POLICY=active";
  expect(check_load, Health::kPass, "follow OMP_WAIT_POLICY=active");
  put("proc/loadavg", "9999.00 0.20 0.30 1/100 5");
  expect(check_load, Health::kWarn, "9999.0 wanted");
}

TEST_F(EnvironmentCheck, AFailureIsStatusFiveAndAWarningIsNot) {
  s_.disk = Space{.total_bytes = 100 * kGiB, .free_bytes = 5 * kGiB};
  std::vector<Result> results = examine(s_);
  EXPECT_EQ(exit_status(results), 0);
  EXPECT_EQ(to_json(results)["health"], "warn");
  EXPECT_THAT(describe(results), HasSubstr("warn  disk              5.0 GiB free of 100.0 GiB"));
  s_.disk->free_bytes = 0;
  results = examine(s_);
  EXPECT_EQ(exit_status(results), 5);
  EXPECT_EQ(to_json(results)["health"], "fail");
  EXPECT_THAT(describe(results), HasSubstr(" 1 fail\n"));
}

TEST(EnvironmentChecks, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Check& check : all_checks()) EXPECT_TRUE(names.insert(check.name).second);
}

TEST(EnvironmentChecks, LookAtThisMachine) {
  Software software;
  software.libtorch = "2.11.0";
  software.why_no_cuda = "not here";
  const Surroundings here = look_around(software);
  EXPECT_GT(here.disk.value().total_bytes, 0);
  for (const Result& result : examine(here)) EXPECT_NE(result.finding.found, "") << result.name;
}

}  // namespace
}  // namespace brim::doctor::environment
