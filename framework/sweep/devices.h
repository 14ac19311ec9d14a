// The devices that a sweep's trials share: so many trials at the same time on each. A GPU is taken
// while it is idle and no other run of Brim has it, and given back as soon as no trial is on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/device/gpus/selection.h"
#include "framework/sweep/plan.h"

namespace brim::sweep {

/// Where one trial runs.
struct Placement {
  std::vector<size_t> devices;         // places in the pool
  std::vector<std::string> arguments;  // for trainer train
  std::vector<std::pair<std::string, std::string>> environment;
};

class Devices {
 public:
  /// Throws as device::select_devices() does for a list of GPUs that are not there, and
  /// Error(kResource) where a trial needs more than there are.
  explicit Devices(const Plan& plan);

  /// Room for a trial; nullopt where there is none now, why_none() then says why.
  std::optional<Placement> take();
  void give_back(const Placement& placement);
  const std::string& why_none() const { return why_none_; }

 private:
  struct Device {
    std::string word;  // for CUDA_VISIBLE_DEVICES; "": the CPU
    int64_t trials = 0;
    std::optional<device::Selection> lock = {};
  };

  bool claim(size_t wanted, std::vector<size_t>& taken);

  const Plan& plan_;
  device::DeviceConfig config_;
  std::vector<Device> pool_;
  std::string why_none_;
  double next_claim_s_ = 0.0;  // the driver is not asked all the time
};

}  // namespace brim::sweep
