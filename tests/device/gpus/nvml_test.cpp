// NVML against a fake library whose GPUs a file describes: values, missing ones, errors midway.
#include "framework/device/gpus/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/device/made_up_gpus.h"

namespace brim::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(NvmlLibrary, IsTheDriversUnlessATestSaysOtherwise) {
  EXPECT_EQ(nvml_library(), "libnvidia-ml.so.1");
  ::setenv("BRIM_NVML_LIBRARY", "/x.so", 1);
  EXPECT_EQ(nvml_library(), "/x.so");
  ::unsetenv("BRIM_NVML_LIBRARY");
}

TEST(NvmlLibrary, ThatIsNotThereIsSaidAndNoGpuIsSeen) {
  Nvml nvml("/nowhere/libnvidia-ml.so.1");
  EXPECT_FALSE(nvml.is_there());
  EXPECT_THAT(nvml.why_not(), HasSubstr("not here (/nowhere/libnvidia-ml.so.1)"));
  EXPECT_THAT(nvml.read(), IsEmpty());
  EXPECT_EQ(nvml.driver_version(), std::nullopt);
}

TEST(NvmlLibrary, AnotherLibraryIsNotTakenForIt) {
  Nvml nvml("libdl.so.2");
  EXPECT_THAT(nvml.why_not(), HasSubstr("is not NVIDIA's management library"));
  EXPECT_THAT(nvml.read(), IsEmpty());
}

class FakeNvml : public ::testing::Test {
 protected:
  MadeUpGpus gpus_{2};
};

TEST_F(FakeNvml, ADriverThatIsNotLoadedIsSaid) {
  gpus_.set("init", "error 9");
  Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
  EXPECT_THAT(nvml.why_not(), HasSubstr("does not start: Driver Not Loaded"));
}

TEST_F(FakeNvml, ValuesComeInOurUnits) {
  gpus_.set("driver", "580.65.06");
  gpus_.set("cuda", "13010");
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"bus", "00000000:3B:00.0"},
                                          {"capability", "90"},
                                          {"memory_reserved", "500000000"},
                                          {"busy", "97"},
                                          {"memory_busy", "41"},
                                          {"temperature", "54"},
                                          {"power", "410500"},
                                          {"power_limit", "700000"},
                                          {"sm_clock", "1755"},
                                          {"max_sm_clock", "1980"},
                                          {"memory_clock", "2600"},
                                          {"max_memory_clock", "2619"},
                                          {"throttle", "36"},
                                          {"ecc", "1"},
                                          {"ecc_corrected", "3"},
                                          {"ecc_uncorrected", "0"},
                                          {"pcie_generation", "4"},
                                          {"max_pcie_generation", "5"},
                                          {"pcie_width", "8"},
                                          {"max_pcie_width", "16"},
                                          {"link.0", "1"},
                                          {"link.1", "0"},
                                          {"link.2", "1"},
                                          {"persistence", "0"}}) {
    gpus_.set(1, key, value);
  }
  gpus_.set(1, "processes", std::to_string(::getpid()) + ":4096,4194305:-");
  Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
  EXPECT_EQ(nvml.driver_version(), "580.65.06");
  EXPECT_EQ(nvml.cuda_version(), "13.1");
  const std::vector<GpuReading> all = nvml.read();
  ASSERT_EQ(all.size(), 2);
  const GpuReading& gpu = all[1];
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.trouble, "");
  EXPECT_EQ(gpu.uuid, "GPU-1aaa-bbb");
  EXPECT_EQ(gpu.name, "NVIDIA Fake");
  EXPECT_EQ(gpu.bus, "00000000:3B:00.0");
  EXPECT_EQ(gpu.compute_capability, 90);
  EXPECT_EQ(gpu.memory_total_bytes, 80'000'000'000);
  EXPECT_EQ(gpu.memory_used_bytes, 1'000'000'000);
  EXPECT_EQ(gpu.memory_free_bytes, 78'500'000'000);  // the driver's own is not free
  EXPECT_EQ(gpu.busy_percent, 97);
  EXPECT_EQ(gpu.memory_busy_percent, 41);
  EXPECT_EQ(gpu.temperature_c, 54);
  EXPECT_DOUBLE_EQ(*gpu.power_w, 410.5);
  EXPECT_DOUBLE_EQ(*gpu.power_limit_w, 700);
  EXPECT_EQ(gpu.sm_mhz, 1755);
  EXPECT_EQ(gpu.max_sm_mhz, 1980);
  EXPECT_EQ(gpu.memory_mhz, 2600);
  EXPECT_EQ(gpu.max_memory_mhz, 2619);
  EXPECT_THAT(*gpu.throttle, ElementsAre("power limit", "heat (driver)"));
  EXPECT_TRUE(gpu.is_slowed);
  EXPECT_EQ(gpu.has_ecc, true);
  EXPECT_EQ(gpu.ecc_corrected, 3);
  EXPECT_EQ(gpu.ecc_uncorrected, 0);
  EXPECT_EQ(gpu.pcie_generation, 4);
  EXPECT_EQ(gpu.max_pcie_generation, 5);
  EXPECT_EQ(gpu.pcie_width, 8);
  EXPECT_EQ(gpu.max_pcie_width, 16);
  EXPECT_EQ(gpu.nvlinks, 2);
  EXPECT_EQ(gpu.persistence, false);
  ASSERT_EQ(gpu.processes->size(), 2);
  EXPECT_EQ(gpu.processes->at(0).pid, ::getpid());
  EXPECT_THAT(gpu.processes->at(0).name, StartsWith("test_device"));
  EXPECT_EQ(gpu.processes->at(0).memory_bytes, 4096);
  EXPECT_EQ(gpu.processes->at(1).name, "");
  EXPECT_EQ(gpu.processes->at(1).memory_bytes, std::nullopt);
}

TEST_F(FakeNvml, WhatAGpuDoesNotHaveIsMissing) {
  Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
  const GpuReading gpu = nvml.read().at(0);
  EXPECT_EQ(gpu.trouble, "");
  EXPECT_EQ(gpu.power_w, std::nullopt);
  EXPECT_EQ(gpu.throttle, std::nullopt);
  EXPECT_EQ(gpu.has_ecc, std::nullopt);
  EXPECT_EQ(gpu.nvlinks, std::nullopt);
  EXPECT_EQ(gpu.processes, std::nullopt);
  EXPECT_FALSE(nvml.has_counters());
  EXPECT_EQ(nvml.cuda_version(), std::nullopt);
}

TEST_F(FakeNvml, ARefusedCallCostsOnlyItsValue) {
  gpus_.set(0, "power", "error 4");
  gpus_.set(0, "temperature", "60");
  const GpuReading gpu = Nvml(BRIM_FAKE_NVML_LIBRARY).read().at(0);
  EXPECT_EQ(gpu.power_w, std::nullopt);
  EXPECT_EQ(gpu.temperature_c, 60);
  EXPECT_EQ(gpu.trouble, "");
}

TEST_F(FakeNvml, ManyProcessesAreAllSeen) {
  std::string list;
  for (int i = 0; i < 300; ++i) list += (i == 0 ? "" : ",") + std::to_string(5'000'000 + i) + ":1";
  gpus_.set(0, "processes", list);
  EXPECT_EQ(Nvml(BRIM_FAKE_NVML_LIBRARY).read().at(0).processes->size(), 300);
}

TEST_F(FakeNvml, AGpuThatVanishesBetweenReadingsIsSaidAndTheOthersGoOn) {
  Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
  EXPECT_EQ(nvml.read().at(0).trouble, "");
  gpus_.set(0, "handle", "error 15");
  const std::vector<GpuReading> all = nvml.read();
  ASSERT_EQ(all.size(), 2);
  EXPECT_THAT(all[0].trouble, StartsWith("lost: "));
  EXPECT_EQ(all[1].trouble, "");
  gpus_.set(0, "handle", "error 16");
  EXPECT_THAT(nvml.read().at(0).trouble, StartsWith("needs a reset"));
  gpus_.set(0, "handle", "error 999");
  EXPECT_EQ(nvml.read().at(0).trouble, "not usable: Some Error");
}

TEST_F(FakeNvml, AGpuThatVanishesInTheMiddleOfAReadingIsSaid) {
  for (int calls = 0; calls < 12; ++calls) {
    gpus_.set(1, "lost_after", std::to_string(calls));
    Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
    const std::vector<GpuReading> all = nvml.read();
    EXPECT_THAT(all.at(1).trouble, StartsWith("lost: ")) << calls;
    EXPECT_EQ(all.at(0).trouble, "") << calls;
  }
}

TEST_F(FakeNvml, CountersCoverTheTimeBetweenTwoReadings) {
  gpus_.set(1, "gpm", "1");
  gpus_.set(1, "gpm.2", "37.5");
  gpus_.set(1, "gpm.5", "21");
  gpus_.set(1, "gpm.10", "error 21");
  gpus_.set(1, "busy", "97");
  void* library = dlopen(BRIM_FAKE_NVML_LIBRARY, RTLD_NOW);
  const auto alive = reinterpret_cast<int (*)()>(dlsym(library, "fake_nvml_samples_alive"));
  {
    Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
    EXPECT_EQ(nvml.read().at(1).sm_percent, std::nullopt);
    EXPECT_TRUE(nvml.has_counters());
    for (int i = 0; i < 3; ++i) {
      const std::vector<GpuReading> all = nvml.read();
      EXPECT_EQ(all[1].sm_percent, 37.5);
      EXPECT_EQ(all[1].tensor_percent, 21);
      EXPECT_EQ(all[1].bandwidth_percent, std::nullopt);
      EXPECT_EQ(all[1].busy_percent, 97);
      EXPECT_EQ(all[0].sm_percent, std::nullopt);
    }
    gpus_.set(1, "handle", "error 15");
    EXPECT_THAT(nvml.read().at(1).trouble, StartsWith("lost: "));
  }
  EXPECT_EQ(alive(), 0);
  dlclose(library);
}

TEST_F(FakeNvml, OneGpuIsFollowedByFewQuestions) {
  gpus_.set(1, "busy", "97");
  gpus_.set(1, "power", "410500");
  gpus_.set(1, "throttle", "4");
  gpus_.set(1, "persistence", "1");
  gpus_.set(1, "gpm", "1");
  gpus_.set(1, "gpm.2", "37.5");
  Nvml nvml(BRIM_FAKE_NVML_LIBRARY);
  EXPECT_EQ(nvml.read_activity(1).sm_percent, std::nullopt);
  const GpuReading gpu = nvml.read_activity(1);
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.trouble, "");
  EXPECT_EQ(gpu.busy_percent, 97);
  EXPECT_EQ(gpu.sm_percent, 37.5);
  EXPECT_EQ(gpu.power_w, 410.5);
  EXPECT_TRUE(gpu.is_slowed);
  EXPECT_EQ(gpu.persistence, std::nullopt);  // not asked
  EXPECT_EQ(gpu.memory_total_bytes, std::nullopt);
  gpus_.set(1, "handle", "error 15");
  EXPECT_THAT(nvml.read_activity(1).trouble, StartsWith("lost: "));
  EXPECT_THAT(Nvml("/nowhere.so").read_activity(0).trouble, HasSubstr("not here"));
}

TEST_F(FakeNvml, SlicesAreSeen) {
  gpus_.set(0, "mig", "1");
  gpus_.set(0, "slice.0.uuid", "MIG-1");
  gpus_.set(0, "slice.0.memory_total", "10000000000");
  gpus_.set(0, "slice.3.uuid", "MIG-2");
  const GpuReading gpu = Nvml(BRIM_FAKE_NVML_LIBRARY).read().at(0);
  EXPECT_TRUE(gpu.is_sliced);
  ASSERT_EQ(gpu.slices.size(), 2);
  EXPECT_EQ(gpu.slices[0].uuid, "MIG-1");
  EXPECT_EQ(gpu.slices[0].memory_total_bytes, 10'000'000'000);
  EXPECT_EQ(gpu.slices[1].uuid, "MIG-2");
  EXPECT_EQ(gpu.slices[1].memory_total_bytes, std::nullopt);
}

}  // namespace
}  // namespace brim::device
