#include "framework/experiment/bench/surroundings.h"

#include <sys/times.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/units.h"
#include "framework/base/version.h"
#include "framework/telemetry/run_record.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr std::string_view kThrottles =
    "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count";

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

double ticks_per_s() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

double own_cpu_s() {
  struct tms own {};
  ::times(&own);
  return static_cast<double>(own.tms_utime + own.tms_stime) / ticks_per_s();
}

json gpu_fingerprint(const device::GpuReading& gpu) {
  return {{"name", gpu.name},
          {"uuid", gpu.uuid},
          {"memory_bytes", or_null(gpu.memory_total_bytes)},
          {"power_limit_w", or_null(gpu.power_limit_w)},
          {"max_sm_mhz", or_null(gpu.max_sm_mhz)},
          {"max_memory_mhz", or_null(gpu.max_memory_mhz)},
          {"is_sliced", gpu.is_sliced}};
}

/// Adds a value to the list under `key`.
template <class T>
void note(json& lists, std::string_view key, const std::optional<T>& value) {
  if (value) lists[std::string(key)].push_back(static_cast<double>(*value));
}

double mean(const json& list) {
  double sum = 0.0;
  for (const json& value : list) sum += value.get<double>();
  return sum / static_cast<double>(list.size());
}

}  // namespace

json fingerprint() {
  const Machine here;
  json machine = telemetry::machine_record();
  machine["governor"] = or_null(here.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  machine["usable_cores"] = here.usable_cores();
  device::Nvml nvml;
  json gpus = json::array();
  for (const device::GpuReading& gpu : nvml.read()) gpus.push_back(gpu_fingerprint(gpu));
  return {{"machine", std::move(machine)},
          {"build",
           {{"brim", brim_version()},
            {"commit", brim_commit()},
            {"type", BRIM_BUILD_TYPE},
            {"flags", BRIM_BUILD_FLAGS},
            {"compiler", BRIM_COMPILER}}},
          {"driver", or_null(nvml.driver_version())},
          {"gpus", std::move(gpus)}};
}

Watch::Watch(Machine machine)
    : machine_(std::move(machine)),
      start_s_(now_s()),
      times_(cpu_times()),
      heat_throttles_(number(kThrottles)),
      throttled_s_(throttled_s()) {}

/// Of all processes of the machine, this one not counted. proc(5): the first line of /proc/stat is
/// "cpu", then user, nice, system, idle, iowait, irq, softirq, steal in ticks.
std::optional<Watch::CpuTimes> Watch::cpu_times() const {
  std::istringstream words(machine_.line("proc/stat").value_or(""));
  std::string name;
  std::vector<double> ticks(8, 0.0);
  words >> name;
  for (double& count : ticks) words >> count;
  if (!words || name != "cpu") return std::nullopt;
  const double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6];
  return CpuTimes{.busy_s = busy / ticks_per_s() - own_cpu_s(),
                  .stolen_s = ticks[7] / ticks_per_s()};
}

/// The mean clock of all cores.
std::optional<double> Watch::mhz() const {
  std::ifstream file(machine_.path("proc/cpuinfo"));
  double sum = 0.0;
  int cores = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    sum += std::strtod(line.c_str() + std::min(line.find(':') + 1, line.size()), nullptr);
    ++cores;
  }
  return cores == 0 ? std::nullopt : std::optional(sum / cores);
}

std::optional<double> Watch::number(std::string_view file) const {
  const auto line = machine_.line(file);
  return line ? std::optional(std::strtod(line->c_str(), nullptr)) : std::nullopt;
}

/// Of this process's cgroup where its own root is mounted, as in a container.
std::optional<double> Watch::throttled_s() const {
  std::ifstream file(machine_.path("sys/fs/cgroup/cpu.stat"));
  for (std::string name; file >> name;) {
    double value = 0.0;
    if (!(file >> value)) break;
    if (name == "throttled_usec") return value * 1e-6;
  }
  return std::nullopt;
}

void Watch::look() {
  if (!mhz_) mhz_ = mhz();  // once: on a machine of many cores it takes milliseconds
  if (nvml_.is_there()) look_at_gpus();
}

void Watch::look_at_gpus() {
  for (const device::GpuReading& gpu : nvml_.read()) {
    json& lists = gpus_[std::to_string(gpu.index)];
    note(lists, "sm_mhz", gpu.sm_mhz);
    note(lists, "temperature_c", gpu.temperature_c);
    note(lists, "power_w", gpu.power_w);
    json& reasons = lists["throttle"];
    if (reasons.is_null()) reasons = json::array();
    if (!gpu.is_slowed) continue;
    for (const std::string& reason : gpu.throttle.value_or(std::vector<std::string>())) {
      if (std::ranges::find(reasons, json(reason)) == reasons.end()) reasons.push_back(reason);
    }
  }
}

json Watch::finish(double own_cpu_s) {
  if (!mhz_ || gpus_.empty()) look();  // a run too short for a look
  const double passed_s = std::max(now_s() - start_s_, 1e-3);
  json found = json::object();
  const auto times = cpu_times();
  if (times && times_) {
    const double others_s = times->busy_s - times_->busy_s - own_cpu_s;
    found["others_cores"] = std::max(0.0, others_s / passed_s);
    found["stolen_cores"] = std::max(0.0, (times->stolen_s - times_->stolen_s) / passed_s);
  }
  if (mhz_) found["cpu_mhz"] = *mhz_;
  if (const auto now = number(kThrottles); now && heat_throttles_) {
    found["heat_throttles"] = *now - *heat_throttles_;
  }
  if (const auto now = throttled_s(); now && throttled_s_) {
    found["quota_throttled_s"] = *now - *throttled_s_;
  }
  for (auto& [index, lists] : gpus_.items()) {
    json gpu = {{"index", std::stoi(index)}, {"throttle", lists["throttle"]}};
    for (const char* key : {"sm_mhz", "temperature_c", "power_w"}) {
      if (lists.contains(key)) gpu[key] = mean(lists[key]);
    }
    found["gpus"].push_back(std::move(gpu));
  }
  return found;
}

}  // namespace brim::experiment
