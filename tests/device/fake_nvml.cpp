// A library in the place of NVIDIA's, whose GPUs are lines "key = value" of the file that
// BRIM_FAKE_NVML names, read again at every call: a test changes the file and so the machine.
//
//   gpus = 2                    driver = 580.65.06        cuda = 13000        init = error 9
//   0.uuid = GPU-1              0.memory_total = 85899345920                  0.busy = 97
//   0.power = error 4           the call returns that status
//   0.lost_after = 7            of the calls on this GPU that many succeed, then it is lost
//   0.processes = 12:4096,13:-  process:bytes             0.slice.0 = MIG-1, and 0.slice.0.memory_…
// A key that is missing is a value that the GPU does not have ("not supported").
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "framework/device/gpus/nvml_api.h"

namespace brim::device::nvml {

struct DeviceHandle {
  std::string prefix;  // "0." or "0.slice.1."
  int gpu = 0;
};
struct SampleBuffer {
  int number = 0;
};

namespace {

using Script = std::map<std::string, std::string>;

Script script() {
  Script lines;
  const char* path = std::getenv("BRIM_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find(" = ");
    if (equals != std::string::npos) lines[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return lines;
}

/// The text of a key, or the status that the call returns.
Return find(const std::string& key, std::string& text) {
  const Script lines = script();
  const auto found = lines.find(key);
  if (found == lines.end()) return Return::kNotSupported;
  text = found->second;
  if (text.starts_with("error ")) return static_cast<Return>(std::stoi(text.substr(6)));
  return Return::kSuccess;
}

/// One more call on a GPU; lost where the script says so.
Return touch(int gpu) {
  static std::map<int, int> calls;
  std::string most;
  if (find(std::to_string(gpu) + ".lost_after", most) != Return::kSuccess) return Return::kSuccess;
  return calls[gpu]++ < std::stoi(most) ? Return::kSuccess : Return::kGpuIsLost;
}

template <class Value>
Return number(Device device, const std::string& key, Value* value) {
  std::string text;
  if (const Return lost = touch(device->gpu); lost != Return::kSuccess) return lost;
  const Return result = find(device->prefix + key, text);
  if (result == Return::kSuccess) std::istringstream(text) >> *value;
  return result;
}

Return words(Device device, const std::string& key, char* buffer, uint32_t size) {
  std::string text;
  if (const Return lost = touch(device->gpu); lost != Return::kSuccess) return lost;
  const Return result = find(device->prefix + key, text);
  if (result != Return::kSuccess) return result;
  if (text.size() >= size) return Return::kInsufficientSize;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return result;
}

Return pair(Device device, const std::string& key, uint32_t* first, uint32_t* second) {
  *second = 0;
  return number(device, key, first);
}

std::map<std::string, DeviceHandle>& handles() {
  static std::map<std::string, DeviceHandle> all;
  return all;
}

Device handle_of(const std::string& prefix, int gpu) {
  return &(handles()[prefix] = DeviceHandle{prefix, gpu});
}

int samples_alive = 0;

}  // namespace

extern "C" {

Return nvmlInit_v2() {
  std::string text;
  const Return result = find("init", text);
  return result == Return::kNotSupported ? Return::kSuccess : result;
}
Return nvmlShutdown() { return Return::kSuccess; }
const char* nvmlErrorString(Return code) {
  return code == static_cast<Return>(9) ? "Driver Not Loaded" : "Some Error";
}
Return nvmlSystemGetDriverVersion(char* buffer, uint32_t size) {
  std::string text;
  const Return result = find("driver", text);
  if (result == Return::kSuccess) std::strncpy(buffer, text.c_str(), size);
  return result;
}
Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  std::string text;
  const Return result = find("cuda", text);
  if (result == Return::kSuccess) *version = std::stoi(text);
  return result;
}
Return nvmlDeviceGetCount_v2(uint32_t* count) {
  std::string text;
  const Return result = find("gpus", text);
  if (result == Return::kSuccess) *count = static_cast<uint32_t>(std::stoi(text));
  return result;
}
Return nvmlDeviceGetHandleByIndex_v2(uint32_t index, Device* device) {
  const auto gpu = static_cast<int>(index);
  std::string text;
  const Return result = find(std::to_string(index) + ".handle", text);
  if (result != Return::kNotSupported && result != Return::kSuccess) return result;
  *device = handle_of(std::to_string(index) + ".", gpu);
  return touch(gpu);
}
Return nvmlDeviceGetUUID(Device d, char* buffer, uint32_t size) {
  return words(d, "uuid", buffer, size);
}
Return nvmlDeviceGetName(Device d, char* buffer, uint32_t size) {
  return words(d, "name", buffer, size);
}
Return nvmlDeviceGetPciInfo_v3(Device d, PciInfo* pci) {
  return words(d, "bus", pci->bus_id.data(), pci->bus_id.size());
}
Return nvmlDeviceGetCudaComputeCapability(Device d, int* major, int* minor) {
  int both = 0;
  const Return result = number(d, "capability", &both);
  *major = both / 10;
  *minor = both % 10;
  return result;
}
Return nvmlDeviceGetMemoryInfo(Device d, Memory* memory) {
  const Return result = number(d, "memory_total", &memory->total);
  if (result != Return::kSuccess) return result;
  number(d, "memory_used", &memory->used);
  memory->free = memory->total - memory->used;
  return result;
}
Return nvmlDeviceGetMemoryInfo_v2(Device d, MemoryV2* memory) {
  if (memory->version != kMemoryV2) return static_cast<Return>(25);
  const Return result = number(d, "memory_total", &memory->total);
  if (result != Return::kSuccess) return result;
  number(d, "memory_used", &memory->used);
  number(d, "memory_reserved", &memory->reserved);
  memory->free = memory->total - memory->used - memory->reserved;
  return result;
}
Return nvmlDeviceGetUtilizationRates(Device d, Utilization* use) {
  const Return result = number(d, "busy", &use->gpu);
  number(d, "memory_busy", &use->memory);
  return result;
}
Return nvmlDeviceGetTemperature(Device d, uint32_t, uint32_t* value) {
  return number(d, "temperature", value);
}
Return nvmlDeviceGetPowerUsage(Device d, uint32_t* value) { return number(d, "power", value); }
Return nvmlDeviceGetEnforcedPowerLimit(Device d, uint32_t* value) {
  return number(d, "power_limit", value);
}
Return nvmlDeviceGetClockInfo(Device d, uint32_t kind, uint32_t* value) {
  return number(d, kind == kClockSm ? "sm_clock" : "memory_clock", value);
}
Return nvmlDeviceGetMaxClockInfo(Device d, uint32_t kind, uint32_t* value) {
  return number(d, kind == kClockSm ? "max_sm_clock" : "max_memory_clock", value);
}
Return nvmlDeviceGetCurrentClocksEventReasons(Device d, uint64_t* bits) {
  return number(d, "throttle", bits);
}
Return nvmlDeviceGetEccMode(Device d, uint32_t* now, uint32_t* pending) {
  return pair(d, "ecc", now, pending);
}
Return nvmlDeviceGetTotalEccErrors(Device d, uint32_t kind, uint32_t, uint64_t* count) {
  return number(d, kind == kEccCorrected ? "ecc_corrected" : "ecc_uncorrected", count);
}
Return nvmlDeviceGetCurrPcieLinkGeneration(Device d, uint32_t* value) {
  return number(d, "pcie_generation", value);
}
Return nvmlDeviceGetMaxPcieLinkGeneration(Device d, uint32_t* value) {
  return number(d, "max_pcie_generation", value);
}
Return nvmlDeviceGetCurrPcieLinkWidth(Device d, uint32_t* value) {
  return number(d, "pcie_width", value);
}
Return nvmlDeviceGetMaxPcieLinkWidth(Device d, uint32_t* value) {
  return number(d, "max_pcie_width", value);
}
Return nvmlDeviceGetNvLinkState(Device d, uint32_t link, uint32_t* state) {
  return number(d, "link." + std::to_string(link), state);
}
Return nvmlDeviceGetPersistenceMode(Device d, uint32_t* value) {
  return number(d, "persistence", value);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device d, uint32_t* count, ProcessInfo* list) {
  if (const Return lost = touch(d->gpu); lost != Return::kSuccess) return lost;
  std::string text;
  const Return result = find(d->prefix + "processes", text);
  if (result != Return::kSuccess) return result;
  std::istringstream entries(text);
  uint32_t found = 0;
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t colon = entry.find(':');
    const std::string memory = entry.substr(colon + 1);
    if (found < *count) {
      list[found] = {.pid = static_cast<uint32_t>(std::stoul(entry.substr(0, colon))),
                     .used_memory = memory == "-" ? ~uint64_t{0} : std::stoull(memory),
                     .gpu_instance = ~0U,
                     .compute_instance = ~0U};
    }
    ++found;
  }
  const bool fits = found <= *count;
  *count = found;
  return fits ? Return::kSuccess : Return::kInsufficientSize;
}
Return nvmlDeviceGetMigMode(Device d, uint32_t* now, uint32_t* pending) {
  return pair(d, "mig", now, pending);
}
Return nvmlDeviceGetMaxMigDeviceCount(Device d, uint32_t* count) {
  *count = 7;
  return touch(d->gpu);
}
Return nvmlDeviceGetMigDeviceHandleByIndex(Device d, uint32_t index, Device* slice) {
  std::string text;
  const std::string key = d->prefix + "slice." + std::to_string(index);
  if (find(key + ".uuid", text) != Return::kSuccess) return Return::kNotFound;
  *slice = handle_of(key + ".", d->gpu);
  return touch(d->gpu);
}
Return nvmlGpmQueryDeviceSupport(Device d, GpmSupport* support) {
  if (support->version != 1) return static_cast<Return>(25);
  return number(d, "gpm", &support->is_supported);
}
Return nvmlGpmSampleAlloc(Sample* sample) {
  *sample = new SampleBuffer;
  ++samples_alive;
  return Return::kSuccess;
}
Return nvmlGpmSampleFree(Sample sample) {
  delete sample;
  --samples_alive;
  return Return::kSuccess;
}
Return nvmlGpmSampleGet(Device d, Sample sample) {
  static std::map<std::string, int> numbers;
  sample->number = 1000 * d->gpu + ++numbers[d->prefix];
  return touch(d->gpu);
}
Return nvmlGpmMetricsGet(GpmMetrics* asked) {
  // Both of one GPU, the second one later.
  if (asked->version != 1 || asked->second->number <= asked->first->number ||
      asked->second->number / 1000 != asked->first->number / 1000) {
    return static_cast<Return>(2);
  }
  const Device device =
      handle_of(std::to_string(asked->first->number / 1000) + ".", asked->first->number / 1000);
  for (uint32_t i = 0; i < asked->count; ++i) {
    GpmMetric& metric = asked->metrics[i];
    metric.result = number(device, "gpm." + std::to_string(metric.id), &metric.value);
  }
  return Return::kSuccess;
}
/// For the tests: samples that were made and not freed.
int fake_nvml_samples_alive() { return samples_alive; }

}  // extern "C"

}  // namespace brim::device::nvml
