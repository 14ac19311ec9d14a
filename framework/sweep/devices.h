// The devices that a sweep's trials share: so many trials at the same time on each. A GPU is taken
// while it is idle and no other run of Brim has it, and given back as soon as no trial is on it;
// all within the rules of the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/device/gpus/selection.h"
#include "framework/site/hold.h"
#include "framework/sweep/plan.h"

namespace brim::sweep {

/// Where one trial runs.
struct Placement {
  std::vector<size_t> devices;         // places in the pool
  std::vector<std::string> arguments;  // for trainer train
  std::vector<std::pair<std::string, std::string>> environment;
  std::shared_ptr<site::Hold> hold = {};  // for the trial, which takes none of its own
};

class Devices {
 public:
  /// Throws as device::select_devices() does for a list of GPUs that are not there, and
  /// Error(kResource) where a trial needs more than there are, or than the rules give.
  explicit Devices(const Plan& plan);

  /// Room for a trial; nullopt where there is none now, why_none() then says why.
  std::optional<Placement> take();
  void give_back(const Placement& placement);
  const std::string& why_none() const { return why_none_; }

 private:
  struct Device {
    site::Device device;
    int64_t trials = 0;
    std::optional<device::Selection> lock = {};
  };

  bool claim(size_t wanted, std::vector<size_t>& taken);
  bool choose(Placement& placement);
  bool hold(Placement& placement);
  site::Devices devices_of(const std::vector<size_t>& places) const;

  const Plan& plan_;
  device::DeviceConfig config_;
  std::vector<Device> pool_;
  std::string why_none_;
  double next_claim_s_ = 0.0;  // the driver is not asked all the time
  double next_hold_s_ = 0.0;   // nor are holds counted
};

}  // namespace brim::sweep
