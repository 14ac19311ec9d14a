// Cores and GPUs of made-up machines: folders in the place of /proc, /sys and /dev.
#include "framework/launch/machine.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <fstream>

#include "framework/launch/binding.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class MadeUpMachine : public ::testing::Test {
 protected:
  MadeUpMachine() {
    fs::remove_all(root_);
    fs::create_directories(root_);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  ~MadeUpMachine() override {
    fs::remove_all(root_);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }

  void add(const std::string& path, const std::string& content) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content << '\n';
  }

  /// A core's place, as the kernel tells it.
  void add_core(int core, int package, int id) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/";
    add(folder + "physical_package_id", std::to_string(package));
    add(folder + "core_id", std::to_string(id));
  }

  fs::path root_ = fs::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(MadeUpMachine, GpusAreThoseWithADeviceFile) {
  EXPECT_EQ(visible_gpus(root_), 0);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia"}) {
    add(std::string("dev/") + name, "");
  }
  EXPECT_EQ(visible_gpus(root_), 3);
}

TEST_F(MadeUpMachine, CudaVisibleDevicesChoosesAmongThem) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2"}) add(std::string("dev/") + name, "");
  const std::vector<std::pair<std::string, int>> cases = {
      {"", 0},       {"0", 1},  {"2, 0", 2},         {"0,1,2,3", 3},
      {"1,-1,2", 1}, {"-1", 0}, {"GPU-8932f937", 1}, {"MIG-a,MIG-b,MIG-c,MIG-d", 4}};
  for (const auto& [list, count] : cases) {
    ::setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
    EXPECT_EQ(visible_gpus(root_), count) << list;
  }
}

TEST_F(MadeUpMachine, ASliceHoldsWholeCores) {
  // Two cores of two hardware threads each, numbered as most machines do.
  add_core(0, 0, 0);
  add_core(1, 0, 1);
  add_core(2, 0, 0);
  add_core(3, 0, 1);
  EXPECT_THAT(bind_ranks(Bind::kCores, 2, {0, 1, 2, 3}, root_),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST_F(MadeUpMachine, CoresLeftOverGoToTheFirstRanks) {
  EXPECT_THAT(bind_ranks(Bind::kCores, 2, {4, 5, 6}, root_),
              ElementsAre(ElementsAre(4, 5), ElementsAre(6)));
}

TEST_F(MadeUpMachine, NumaKeepsARankOnOneNode) {
  add("sys/devices/system/node/node0/cpulist", "0-2,6");
  add("sys/devices/system/node/node1/cpulist", "3-5,7");
  add("sys/devices/system/node/node2/cpulist", "");
  const Cores all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(bind_ranks(Bind::kNuma, 1, all, root_),
              ElementsAre(ElementsAre(0, 1, 2, 6, 3, 4, 5, 7)));
  EXPECT_THAT(bind_ranks(Bind::kNuma, 2, all, root_),
              ElementsAre(ElementsAre(0, 1, 2, 6), ElementsAre(3, 4, 5, 7)));
  EXPECT_THAT(bind_ranks(Bind::kNuma, 3, all, root_),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 6), ElementsAre(3, 4, 5, 7)));
  EXPECT_THAT(bind_ranks(Bind::kNuma, 2, {1, 4, 5}, root_),
              ElementsAre(ElementsAre(1), ElementsAre(4, 5)));
}

}  // namespace
}  // namespace brim::launch
