#include "framework/device/gpus/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace brim::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DescribeGpu, SaysWhatUtilisationCannotTell) {
  GpuReading gpu;
  gpu.index = 3;
  gpu.name = "NVIDIA A100";
  gpu.busy_percent = 97;
  EXPECT_THAT(describe(gpu), AllOf(HasSubstr("GPU 3  NVIDIA A100\n"),
                                   HasSubstr("something ran 97 % of the time (one kernel on")));
  gpu.sm_percent = 37.25;
  gpu.tensor_percent = 21;
  EXPECT_THAT(describe(gpu),
              AllOf(HasSubstr("activity: SMs 37.2 %, tensor cores 21.0 % (counters)"),
                    Not(HasSubstr("something ran"))));
}

TEST(DescribeGpu, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(describe(GpuReading{}), "GPU 0\n");
  GpuReading lost;
  lost.index = 1;
  lost.trouble = "lost: gone";
  EXPECT_EQ(describe(lost), "GPU 1\n       lost: gone\n");
}

TEST(DescribeGpu, ShowsHealthAndSurroundings) {
  GpuReading gpu;
  gpu.temperature_c = 54;
  gpu.power_w = 410.4;
  gpu.power_limit_w = 700;
  gpu.sm_mhz = 1755;
  gpu.max_sm_mhz = 1980;
  gpu.throttle = {"power limit"};
  gpu.has_ecc = true;
  gpu.ecc_corrected = 3;
  gpu.ecc_uncorrected = 0;
  gpu.pcie_generation = 4;
  gpu.pcie_width = 8;
  gpu.max_pcie_generation = 5;
  gpu.max_pcie_width = 16;
  gpu.processes = {{.pid = 12, .name = "trainer", .memory_bytes = 1 << 30},
                   {.pid = 13, .name = "", .memory_bytes = {}}};
  const std::string text = describe(gpu);
  EXPECT_THAT(text, HasSubstr("54 °C, 410 of 700 W, SM 1755 of 1980 MHz, clocks held by: power"));
  EXPECT_THAT(text, HasSubstr("ECC on, 3 errors corrected and 0 not, PCIe 4.0 x8 (of 5.0 x16)\n"));
  EXPECT_THAT(text, HasSubstr("processes: 12 trainer 1.0 GiB, 13\n"));
}

TEST(GpuAsJson, KnowsMissingFromZero) {
  GpuReading gpu;
  gpu.index = 1;
  gpu.busy_percent = 0;
  gpu.compute_capability = 90;
  const nlohmann::json json = to_json(gpu);
  EXPECT_EQ(json["index"], 1);
  EXPECT_EQ(json["busy_percent"], 0);
  EXPECT_EQ(json["sm_percent"], nullptr);
  EXPECT_EQ(json["compute_capability"], "9.0");
  EXPECT_EQ(json["processes"], nullptr);
  EXPECT_EQ(json["trouble"], nullptr);
}

}  // namespace
}  // namespace brim::device
