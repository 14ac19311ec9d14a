// What throughput depends on beside the recipe: the machine it was measured on and what
// else ran there meanwhile.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "framework/base/machine.h"
#include "framework/device/gpus/nvml.h"

namespace brim::experiment {

/// What stays the same while a bench runs: "machine" (telemetry::machine_record(), "governor"),
/// "build" ("brim", "commit", "type", "flags", "compiler"), "driver", "gpus" (name, UUID, limits of
/// power and clocks). What is not known is null.
nlohmann::json fingerprint();

/// Watches the machine while a run is measured. Never throws: what can't be read is left out.
class Watch {
 public:
  explicit Watch(Machine machine = Machine());

  /// Reads clocks, temperatures and power. Call now and then while the run continues.
  void look();

  /// Since the construction: "others_cores" (processor time of other processes, in cores),
  /// "stolen_cores" (taken by the host of a virtual machine), "cpu_mhz", "heat_throttles" (times
  /// that the first core was slowed by heat), "quota_throttled_s", and for each GPU "sm_mhz",
  /// "temperature_c", "power_w" (means), "throttle" (what slowed it). `own_cpu_s`: the run's part.
  nlohmann::json finish(double own_cpu_s);

 private:
  struct CpuTimes {
    double busy_s = 0.0;
    double stolen_s = 0.0;
  };
  std::optional<CpuTimes> cpu_times() const;
  std::optional<double> mhz() const;
  std::optional<double> number(std::string_view file) const;
  std::optional<double> throttled_s() const;
  void look_at_gpus();

  Machine machine_;
  device::Nvml nvml_;
  double start_s_;
  std::optional<CpuTimes> times_;
  std::optional<double> heat_throttles_;
  std::optional<double> throttled_s_;
  std::optional<double> mhz_;
  nlohmann::json gpus_ = nlohmann::json::object();  // by index: lists of what was read
};

}  // namespace brim::experiment
