// Metrics of a GPU against the fake NVML, whose GPUs a file describes.
#include "framework/telemetry/device_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "framework/base/units.h"
#include "tests/device/made_up_gpus.h"

namespace brim::telemetry {
namespace {

using device::MadeUpGpus;
using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr double kLimitS = 60;  // only to catch a hang
constexpr milliseconds kSoon(1);

/// The first line's "device" for which `holds`.
template <class Holds>
json wait_for(DeviceMetrics& metrics, Holds holds) {
  for (const double end = now_s() + kLimitS; now_s() < end;) {
    json line = json::object();
    metrics.add_to(line);
    json found = line.value("device", json::object());
    if (holds(found)) return found;
    std::this_thread::sleep_for(kSoon);
  }
  ADD_FAILURE() << "no such metrics came";
  return json::object();
}

class DeviceFiguresTest : public ::testing::Test {
 protected:
  DeviceFiguresTest() { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  ~DeviceFiguresTest() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  MadeUpGpus gpus_{2};
};

TEST_F(DeviceFiguresTest, AreThoseOfTheGpuThatCudaMeans) {
  gpus_.set(1, "busy", "97");
  gpus_.set(1, "throttle", "4");
  gpus_.set(1, "power", "410500");
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  DeviceMetrics metrics(0, kSoon, BRIM_FAKE_NVML_LIBRARY);
  const json device = wait_for(metrics, [](const json& found) { return !found.empty(); });
  EXPECT_EQ(device, (json{{"busy_percent", 97.0},
                          {"memory_busy_percent", 0.0},
                          {"slowed", 1.0},
                          {"power_w", 410.5}}));
}

TEST_F(DeviceFiguresTest, HaveCountersFromTheSecondReadingOn) {
  gpus_.set(0, "gpm", "1");
  gpus_.set(0, "gpm.2", "37.5");
  gpus_.set(0, "gpm.5", "21");
  DeviceMetrics metrics(0, kSoon, BRIM_FAKE_NVML_LIBRARY);
  const json device =
      wait_for(metrics, [](const json& found) { return found.contains("sm_percent"); });
  EXPECT_EQ(device["sm_percent"], 37.5);
  EXPECT_EQ(device["tensor_percent"], 21);
  EXPECT_FALSE(device.contains("bandwidth_percent"));
}

TEST_F(DeviceFiguresTest, AreMeansSinceTheLastLine) {
  gpus_.set(0, "throttle", "1");  // idle, which is not slowed
  DeviceMetrics metrics(0, kSoon, BRIM_FAKE_NVML_LIBRARY);
  wait_for(metrics, [](const json& found) { return found.value("slowed", -1.0) == 0; });
  gpus_.set(0, "busy", "50");
  wait_for(metrics, [](const json& found) { return found.value("busy_percent", -1.0) == 50; });
  const json mixed = [&] {
    gpus_.set(0, "busy", "100");
    return wait_for(metrics, [](const json& found) { return !found.empty(); });
  }();
  EXPECT_GE(mixed["busy_percent"], 50.0);
  EXPECT_LE(mixed["busy_percent"], 100.0);
}

TEST_F(DeviceFiguresTest, AreAbsentBetweenReadings) {
  DeviceMetrics metrics(0, std::chrono::hours(1), BRIM_FAKE_NVML_LIBRARY);
  wait_for(metrics, [](const json& found) { return !found.empty(); });
  json line = json::object();
  metrics.add_to(line);
  EXPECT_TRUE(line.empty());
}

TEST_F(DeviceFiguresTest, EndWithALostGpuAndOneLine) {
  ::testing::internal::CaptureStderr();
  {
    DeviceMetrics metrics(0, kSoon, BRIM_FAKE_NVML_LIBRARY);
    wait_for(metrics, [](const json& found) { return !found.empty(); });
    gpus_.set(0, "handle", "error 15");
    wait_for(metrics, [&](const json& found) { return found.empty(); });
    for (const double end = now_s() + 0.02; now_s() < end;) {
      json line = json::object();
      metrics.add_to(line);
      std::this_thread::sleep_for(kSoon);
    }
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("metrics of GPU 0 end here: lost"),
            said.rfind("metrics of GPU 0 end here: lost"));
}

TEST_F(DeviceFiguresTest, WithoutNvmlThereAreNoneAndOneLineSaysWhy) {
  ::testing::internal::CaptureStderr();
  json line = json::object();
  {
    DeviceMetrics metrics(0, kSoon, "/nowhere/libnvidia-ml.so.1");
    metrics.add_to(line);
  }
  EXPECT_TRUE(line.empty());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no metrics of the GPU in metrics.jsonl: NVIDIA's management library is "
                        "not here"));
}

TEST_F(DeviceFiguresTest, AGpuThatNvmlDoesNotShowHasNone) {
  ::testing::internal::CaptureStderr();
  { const DeviceMetrics metrics(2, kSoon, BRIM_FAKE_NVML_LIBRARY); }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("does not show the one"));
}

}  // namespace
}  // namespace brim::telemetry
