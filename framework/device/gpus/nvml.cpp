#include "framework/device/gpus/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

namespace brim::device {
namespace {

using nvml::Return;

constexpr const char* kLost =
    "lost: the driver no longer reaches it (it fell off the bus, or a fault has shut it down); "
    "see the kernel's log for Xid, then reset the GPU or restart the machine";
constexpr const char* kNeedsReset =
    "needs a reset before it can be used: nvidia-smi --gpu-reset, or restart the machine";

template <class Function>
void bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

nvml::Api bind_all(void* library) {
  nvml::Api api;
  bind(library, "nvmlInit_v2", api.init);
  bind(library, "nvmlShutdown", api.shutdown);
  bind(library, "nvmlErrorString", api.error_text);
  bind(library, "nvmlSystemGetDriverVersion", api.driver_version);
  bind(library, "nvmlSystemGetCudaDriverVersion_v2", api.cuda_version);
  bind(library, "nvmlDeviceGetCount_v2", api.count);
  bind(library, "nvmlDeviceGetHandleByIndex_v2", api.handle);
  bind(library, "nvmlDeviceGetUUID", api.uuid);
  bind(library, "nvmlDeviceGetName", api.name);
  bind(library, "nvmlDeviceGetPciInfo_v3", api.pci);
  bind(library, "nvmlDeviceGetCudaComputeCapability", api.capability);
  bind(library, "nvmlDeviceGetMemoryInfo", api.memory);
  bind(library, "nvmlDeviceGetMemoryInfo_v2", api.memory_v2);
  bind(library, "nvmlDeviceGetUtilizationRates", api.utilization);
  bind(library, "nvmlDeviceGetTemperature", api.temperature);
  bind(library, "nvmlDeviceGetPowerUsage", api.power);
  bind(library, "nvmlDeviceGetEnforcedPowerLimit", api.power_limit);
  bind(library, "nvmlDeviceGetClockInfo", api.clock);
  bind(library, "nvmlDeviceGetMaxClockInfo", api.max_clock);
  bind(library, "nvmlDeviceGetCurrentClocksEventReasons", api.throttle);
  if (api.throttle == nullptr) {  // drivers before 535
    bind(library, "nvmlDeviceGetCurrentClocksThrottleReasons", api.throttle);
  }
  bind(library, "nvmlDeviceGetEccMode", api.ecc_mode);
  bind(library, "nvmlDeviceGetTotalEccErrors", api.ecc_errors);
  bind(library, "nvmlDeviceGetCurrPcieLinkGeneration", api.pcie_generation);
  bind(library, "nvmlDeviceGetMaxPcieLinkGeneration", api.max_pcie_generation);
  bind(library, "nvmlDeviceGetCurrPcieLinkWidth", api.pcie_width);
  bind(library, "nvmlDeviceGetMaxPcieLinkWidth", api.max_pcie_width);
  bind(library, "nvmlDeviceGetNvLinkState", api.link_state);
  bind(library, "nvmlDeviceGetComputeRunningProcesses_v3", api.processes);
  bind(library, "nvmlDeviceGetPersistenceMode", api.persistence);
  bind(library, "nvmlDeviceGetMigMode", api.mig_mode);
  bind(library, "nvmlDeviceGetMaxMigDeviceCount", api.max_slices);
  bind(library, "nvmlDeviceGetMigDeviceHandleByIndex", api.slice);
  bind(library, "nvmlGpmQueryDeviceSupport", api.gpm_support);
  bind(library, "nvmlGpmSampleAlloc", api.gpm_alloc);
  bind(library, "nvmlGpmSampleFree", api.gpm_free);
  bind(library, "nvmlGpmSampleGet", api.gpm_sample);
  bind(library, "nvmlGpmMetricsGet", api.gpm_metrics);
  return api;
}

/// What a fixed buffer holds up to its first NUL, whether it has one or not.
template <size_t N>
std::string text_of(const std::array<char, N>& buffer) {
  const std::string_view all(buffer.data(), buffer.size());
  return std::string(all.substr(0, all.find('\0')));
}

std::vector<std::string> reasons(uint64_t bits) {
  static constexpr std::array<std::pair<uint64_t, const char*>, 9> kReasons = {{
      {nvml::kIdleClocks, "idle"},
      {nvml::kApplicationClocks, "clocks set by the administrator"},
      {nvml::kPowerCap, "power limit"},
      {nvml::kHardwareSlowdown, "hardware slowdown"},
      {nvml::kSyncBoost, "clocks of a group of GPUs"},
      {nvml::kThermalSoftware, "heat (driver)"},
      {nvml::kThermalHardware, "heat (hardware)"},
      {nvml::kPowerBrake, "power brake"},
      {nvml::kDisplayClocks, "display clocks"},
  }};
  std::vector<std::string> words;
  for (const auto& [bit, word] : kReasons) {
    if ((bits & bit) != 0) words.emplace_back(word);
    bits &= ~bit;
  }
  if (bits != 0) words.push_back(fmt::format("other ({:#x})", bits));
  return words;
}

std::string process_name(int64_t pid) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::getline(file, name);
  return name;
}

std::optional<int64_t> bytes(uint64_t value) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return value <= kMax ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
}

}  // namespace

std::string nvml_library() {
  const char* path = std::getenv("BRIM_NVML_LIBRARY");
  return path != nullptr && *path != '\0' ? path : "libnvidia-ml.so.1";
}

Nvml::Nvml(const std::string& library) {
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    why_not_ = fmt::format("NVIDIA's management library is not here ({})", library);
    return;
  }
  api_ = bind_all(library_);
  if (api_.init == nullptr || api_.count == nullptr || api_.handle == nullptr) {
    why_not_ = fmt::format("{} is not NVIDIA's management library, or too old a one", library);
    return;
  }
  const Return code = api_.init();
  if (code != Return::kSuccess) {
    why_not_ = fmt::format("NVIDIA's management library does not start: {}", error_text(code));
  }
}

Nvml::~Nvml() {
  for (const auto& [index, sample] : samples_) {
    if (api_.gpm_free != nullptr) api_.gpm_free(sample);
  }
  if (is_there() && api_.shutdown != nullptr) api_.shutdown();
  if (library_ != nullptr) dlclose(library_);
}

std::string Nvml::error_text(Return code) const {
  const char* text = api_.error_text == nullptr ? nullptr : api_.error_text(code);
  return text == nullptr ? fmt::format("error {}", static_cast<int>(code)) : text;
}

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 96> version{};
  if (!is_there() || api_.driver_version == nullptr ||
      api_.driver_version(version.data(), version.size()) != Return::kSuccess) {
    return std::nullopt;
  }
  return text_of(version);
}

std::optional<std::string> Nvml::cuda_version() const {
  int version = 0;  // 13010 is 13.1
  if (!is_there() || api_.cuda_version == nullptr ||
      api_.cuda_version(&version) != Return::kSuccess) {
    return std::nullopt;
  }
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::vector<GpuReading> Nvml::read() {
  uint32_t count = 0;
  if (!is_there() || api_.count(&count) != Return::kSuccess) return {};
  std::vector<GpuReading> gpus;
  for (uint32_t index = 0; index < count; ++index) gpus.push_back(read(index));
  return gpus;
}

template <class Function, class... Args>
bool Nvml::got(GpuReading& gpu, Function function, Args... args) const {
  if (function == nullptr || !gpu.trouble.empty()) return false;
  const Return code = function(args...);
  if (code == Return::kGpuIsLost) gpu.trouble = kLost;
  if (code == Return::kResetRequired) gpu.trouble = kNeedsReset;
  return code == Return::kSuccess;
}

nvml::Device Nvml::find(uint32_t index, GpuReading& gpu) const {
  gpu.index = static_cast<int>(index);
  nvml::Device device = nullptr;
  const Return code = api_.handle(index, &device);
  if (code == Return::kSuccess) return device;
  gpu.trouble = code == Return::kGpuIsLost       ? kLost
                : code == Return::kResetRequired ? kNeedsReset
                                                 : "not usable: " + error_text(code);
  return nullptr;
}

GpuReading Nvml::read_activity(int index) {
  GpuReading gpu;
  gpu.index = index;
  gpu.trouble = why_not_;
  if (!is_there()) return gpu;
  const nvml::Device device = find(static_cast<uint32_t>(index), gpu);
  if (device == nullptr) return gpu;
  read_state(device, gpu);
  read_counters(device, gpu);
  return gpu;
}

GpuReading Nvml::read(uint32_t index) {
  GpuReading gpu;
  const nvml::Device device = find(index, gpu);
  if (device == nullptr) return gpu;
  std::array<char, 96> text{};
  if (got(gpu, api_.uuid, device, text.data(), text.size())) gpu.uuid = text_of(text);
  if (got(gpu, api_.name, device, text.data(), text.size())) gpu.name = text_of(text);
  nvml::PciInfo pci{};
  if (got(gpu, api_.pci, device, &pci)) gpu.bus = text_of(pci.bus_id);
  int major = 0;
  int minor = 0;
  if (got(gpu, api_.capability, device, &major, &minor)) {
    gpu.compute_capability = 10 * major + minor;
  }
  read_memory(device, gpu);
  read_state(device, gpu);
  read_health(device, gpu);
  read_links(device, gpu);
  read_processes(device, gpu);
  read_slices(device, gpu);
  read_counters(device, gpu);
  return gpu;
}

void Nvml::read_memory(nvml::Device device, GpuReading& gpu) const {
  // The second version tells what the driver keeps for itself from what is used.
  nvml::MemoryV2 memory{
      .version = nvml::kMemoryV2, .total = 0, .reserved = 0, .free = 0, .used = 0};
  nvml::Memory older{};
  if (got(gpu, api_.memory_v2, device, &memory)) {
    older = {.total = memory.total, .free = memory.free, .used = memory.used};
  } else if (!got(gpu, api_.memory, device, &older)) {
    return;
  }
  gpu.memory_total_bytes = bytes(older.total);
  gpu.memory_free_bytes = bytes(older.free);
  gpu.memory_used_bytes = bytes(older.used);
}

void Nvml::read_state(nvml::Device device, GpuReading& gpu) const {
  nvml::Utilization use{};
  if (got(gpu, api_.utilization, device, &use)) {
    gpu.busy_percent = use.gpu;
    gpu.memory_busy_percent = use.memory;
  }
  const auto number = [&](auto function, auto... args) -> std::optional<int> {
    uint32_t value = 0;
    if (!got(gpu, function, device, args..., &value)) return std::nullopt;
    return static_cast<int>(value);
  };
  gpu.temperature_c = number(api_.temperature, nvml::kTemperatureGpu);
  if (const auto milliwatts = number(api_.power)) gpu.power_w = 1e-3 * *milliwatts;
  if (const auto milliwatts = number(api_.power_limit)) gpu.power_limit_w = 1e-3 * *milliwatts;
  gpu.sm_mhz = number(api_.clock, nvml::kClockSm);
  gpu.max_sm_mhz = number(api_.max_clock, nvml::kClockSm);
  gpu.memory_mhz = number(api_.clock, nvml::kClockMemory);
  gpu.max_memory_mhz = number(api_.max_clock, nvml::kClockMemory);

  uint64_t bits = 0;
  if (got(gpu, api_.throttle, device, &bits)) {
    constexpr uint64_t kSlowed = nvml::kPowerCap | nvml::kHardwareSlowdown |
                                 nvml::kThermalSoftware | nvml::kThermalHardware |
                                 nvml::kPowerBrake;
    gpu.throttle = reasons(bits);
    gpu.is_slowed = (bits & kSlowed) != 0;
  }
}

void Nvml::read_health(nvml::Device device, GpuReading& gpu) const {
  uint32_t mode = 0;
  if (got(gpu, api_.persistence, device, &mode)) gpu.persistence = mode != 0;
  uint32_t current = 0;
  uint32_t pending = 0;
  if (got(gpu, api_.ecc_mode, device, &current, &pending)) gpu.has_ecc = current != 0;
  const auto errors = [&](uint32_t kind) -> std::optional<int64_t> {
    uint64_t count = 0;
    if (!got(gpu, api_.ecc_errors, device, kind, nvml::kEccSinceReload, &count)) {
      return std::nullopt;
    }
    return bytes(count);
  };
  gpu.ecc_corrected = errors(nvml::kEccCorrected);
  gpu.ecc_uncorrected = errors(nvml::kEccUncorrected);
}

void Nvml::read_links(nvml::Device device, GpuReading& gpu) const {
  const auto number = [&](auto function) -> std::optional<int> {
    uint32_t value = 0;
    if (!got(gpu, function, device, &value)) return std::nullopt;
    return static_cast<int>(value);
  };
  gpu.pcie_generation = number(api_.pcie_generation);
  gpu.max_pcie_generation = number(api_.max_pcie_generation);
  gpu.pcie_width = number(api_.pcie_width);
  gpu.max_pcie_width = number(api_.max_pcie_width);
  for (uint32_t link = 0; link < nvml::kMaxLinks; ++link) {
    uint32_t state = 0;
    if (!got(gpu, api_.link_state, device, link, &state)) break;
    gpu.nvlinks = gpu.nvlinks.value_or(0) + (state != 0 ? 1 : 0);
  }
}

void Nvml::read_processes(nvml::Device device, GpuReading& gpu) const {
  if (api_.processes == nullptr || !gpu.trouble.empty()) return;
  constexpr size_t kMax = 4096;  // far more than a GPU has contexts
  std::vector<nvml::ProcessInfo> list(64);
  auto count = static_cast<uint32_t>(list.size());
  Return code = api_.processes(device, &count, list.data());
  // More may come between two calls.
  while (code == Return::kInsufficientSize && list.size() < kMax) {
    list.resize(std::min<size_t>(kMax, std::max<size_t>(count, 2 * list.size())));
    count = static_cast<uint32_t>(list.size());
    code = api_.processes(device, &count, list.data());
  }
  if (code == Return::kGpuIsLost) gpu.trouble = kLost;
  if (code != Return::kSuccess) return;
  gpu.processes.emplace();
  for (size_t i = 0; i < std::min<size_t>(count, list.size()); ++i) {
    gpu.processes->push_back({.pid = list[i].pid,
                              .name = process_name(list[i].pid),
                              .memory_bytes = bytes(list[i].used_memory)});
  }
}

void Nvml::read_slices(nvml::Device device, GpuReading& gpu) const {
  uint32_t current = 0;
  uint32_t pending = 0;
  uint32_t most = 0;
  if (!got(gpu, api_.mig_mode, device, &current, &pending) || current == 0) return;
  gpu.is_sliced = true;
  if (!got(gpu, api_.max_slices, device, &most)) return;
  for (uint32_t i = 0; i < std::min(most, 64U); ++i) {
    nvml::Device slice = nullptr;
    std::array<char, 96> text{};
    if (!got(gpu, api_.slice, device, i, &slice)) continue;  // numbers may have gaps
    if (!got(gpu, api_.uuid, slice, text.data(), text.size())) continue;
    GpuReading own;
    read_memory(slice, own);
    gpu.slices.push_back({.uuid = text_of(text),
                          .memory_total_bytes = own.memory_total_bytes,
                          .memory_free_bytes = own.memory_free_bytes});
  }
}

void Nvml::read_counters(nvml::Device device, GpuReading& gpu) {
  nvml::GpmSupport support{.version = 1, .is_supported = 0};
  if (api_.gpm_metrics == nullptr || api_.gpm_free == nullptr ||
      !got(gpu, api_.gpm_support, device, &support) || support.is_supported == 0) {
    return;
  }
  nvml::Sample now = nullptr;
  if (!got(gpu, api_.gpm_alloc, &now)) return;
  if (!got(gpu, api_.gpm_sample, device, now)) {
    api_.gpm_free(now);
    return;
  }
  const nvml::Sample before = std::exchange(samples_[gpu.index], now);
  if (before == nullptr) return;
  nvml::GpmMetrics asked{.version = 1, .count = 3, .first = before, .second = now, .metrics = {}};
  asked.metrics[0].id = nvml::kSmUtil;
  asked.metrics[1].id = nvml::kAnyTensorUtil;
  asked.metrics[2].id = nvml::kDramBandwidthUtil;
  if (got(gpu, api_.gpm_metrics, &asked)) {
    const auto value = [&](size_t i) {
      const nvml::GpmMetric& metric = asked.metrics[i];
      return metric.result == Return::kSuccess ? std::optional(metric.value) : std::nullopt;
    };
    gpu.sm_percent = value(0);
    gpu.tensor_percent = value(1);
    gpu.bandwidth_percent = value(2);
  }
  api_.gpm_free(before);
}

}  // namespace brim::device
