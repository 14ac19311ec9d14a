// nvml_api.h declares the part of NVIDIA's library that Brim calls; here NVIDIA's own header says
// whether it does so rightly. All of it is known to the compiler.
#include <gtest/gtest.h>
#include <nvml.h>

#include <cstddef>
#include <type_traits>

#include "framework/device/gpus/nvml_api.h"

namespace brim::device::nvml {
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

#define SAME_FIELD(Ours, ours, Theirs, theirs)                      \
  static_assert(offsetof(Ours, ours) == offsetof(Theirs, theirs) && \
                sizeof(Ours::ours) == sizeof(Theirs::theirs))

static_assert(sizeof(Memory) == sizeof(nvmlMemory_t));
SAME_FIELD(Memory, total, nvmlMemory_t, total);
SAME_FIELD(Memory, free, nvmlMemory_t, free);
SAME_FIELD(Memory, used, nvmlMemory_t, used);
static_assert(sizeof(MemoryV2) == sizeof(nvmlMemory_v2_t) && kMemoryV2 == nvmlMemory_v2);
SAME_FIELD(MemoryV2, total, nvmlMemory_v2_t, total);
SAME_FIELD(MemoryV2, reserved, nvmlMemory_v2_t, reserved);
SAME_FIELD(MemoryV2, free, nvmlMemory_v2_t, free);
SAME_FIELD(MemoryV2, used, nvmlMemory_v2_t, used);
static_assert(sizeof(Utilization) == sizeof(nvmlUtilization_t));
SAME_FIELD(Utilization, gpu, nvmlUtilization_t, gpu);
static_assert(sizeof(ProcessInfo) == sizeof(nvmlProcessInfo_t));
SAME_FIELD(ProcessInfo, pid, nvmlProcessInfo_t, pid);
SAME_FIELD(ProcessInfo, used_memory, nvmlProcessInfo_t, usedGpuMemory);
static_assert(sizeof(PciInfo) == sizeof(nvmlPciInfo_t));
SAME_FIELD(PciInfo, bus_id, nvmlPciInfo_t, busId);

using TheirMetric = std::remove_reference_t<decltype(nvmlGpmMetricsGet_t{}.metrics[0])>;
static_assert(sizeof(GpmSupport) == sizeof(nvmlGpmSupport_t));
SAME_FIELD(GpmSupport, is_supported, nvmlGpmSupport_t, isSupportedDevice);
static_assert(sizeof(GpmMetric) == sizeof(TheirMetric));
SAME_FIELD(GpmMetric, result, TheirMetric, nvmlReturn);
SAME_FIELD(GpmMetric, value, TheirMetric, value);
static_assert(sizeof(GpmMetrics) == sizeof(nvmlGpmMetricsGet_t));
SAME_FIELD(GpmMetrics, count, nvmlGpmMetricsGet_t, numMetrics);
SAME_FIELD(GpmMetrics, first, nvmlGpmMetricsGet_t, sample1);  // NOLINT(bugprone-sizeof-expression)
SAME_FIELD(GpmMetrics, metrics, nvmlGpmMetricsGet_t, metrics);
static_assert(same(kSmUtil, NVML_GPM_METRIC_SM_UTIL));
static_assert(same(kAnyTensorUtil, NVML_GPM_METRIC_ANY_TENSOR_UTIL));
static_assert(same(kDramBandwidthUtil, NVML_GPM_METRIC_DRAM_BW_UTIL));

static_assert(kTemperatureGpu == NVML_TEMPERATURE_GPU && kMaxLinks == NVML_NVLINK_MAX_LINKS);
static_assert(kClockSm == NVML_CLOCK_SM && kClockMemory == NVML_CLOCK_MEM);
static_assert(kEccCorrected == NVML_MEMORY_ERROR_TYPE_CORRECTED);
static_assert(kEccUncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(kEccSinceReload == NVML_VOLATILE_ECC);

static_assert(same(Return::kSuccess, NVML_SUCCESS));
static_assert(same(Return::kNotSupported, NVML_ERROR_NOT_SUPPORTED));
static_assert(same(Return::kNotFound, NVML_ERROR_NOT_FOUND));
static_assert(same(Return::kInsufficientSize, NVML_ERROR_INSUFFICIENT_SIZE));
static_assert(same(Return::kGpuIsLost, NVML_ERROR_GPU_IS_LOST));
static_assert(same(Return::kResetRequired, NVML_ERROR_RESET_REQUIRED));

static_assert(kIdleClocks == nvmlClocksEventReasonGpuIdle);
static_assert(kApplicationClocks == nvmlClocksEventReasonApplicationsClocksSetting);
static_assert(kPowerCap == nvmlClocksEventReasonSwPowerCap);
static_assert(kHardwareSlowdown == nvmlClocksThrottleReasonHwSlowdown);
static_assert(kSyncBoost == nvmlClocksEventReasonSyncBoost);
static_assert(kThermalSoftware == nvmlClocksEventReasonSwThermalSlowdown);
static_assert(kThermalHardware == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(kPowerBrake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
static_assert(kDisplayClocks == nvmlClocksEventReasonDisplayClockSetting);

TEST(NvmlLayoutTest, IsThatOfNvidiasHeader) { SUCCEED() << "static_assert()s say so"; }

}  // namespace
}  // namespace brim::device::nvml
