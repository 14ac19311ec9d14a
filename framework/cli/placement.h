// Where a command computes: the devices that the recipe asks for, as far as the rules of the
// machine (framework/site/) let this user have them.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "framework/device/config.h"
#include "framework/device/gpus/selection.h"
#include "framework/site/hold.h"
#include "framework/site/limits.h"

namespace brim::cli {

/// The devices of a run. Hold it while the run runs.
struct Placement {
  device::Selection selection;  // with its locks
  site::Devices devices;
  std::unique_ptr<site::Hold> hold;  // null under the process that holds them, such as a sweep
};

/// The devices of a training that no launcher has placed, said on stderr. Waits while training has
/// to leave them to others. Sets CUDA_VISIBLE_DEVICES to them, and `config.select` to what is left
/// for choose_device() to do. `is_saved`: the run has trained before, and stopped to leave its
/// devices. Throws as select_devices() and take_hold() do, Error(kResource) in quiet hours, and
/// Error(kStopped) where a stop ends the wait.
Placement place(device::DeviceConfig& config, const std::string& run, bool is_saved = false);

/// Of a rank that a launcher has placed on `device`. Throws as place() does, and waits for nothing.
Placement admit_rank(c10::Device device, const std::string& run);

/// Of a command that trains nothing, and computes where choose_device() says: bounds `config` by
/// the rules, and holds that device. Null as in Placement. Throws UsageError in one of several
/// ranks.
std::unique_ptr<site::Hold> hold_device(device::DeviceConfig& config, const std::string& command);

/// What choose_device() has chosen, as rules name it.
site::Devices devices_of(c10::Device device);

/// Whether another process of this user, a sweep, holds this one's devices and starts it again.
bool is_held_by_parent();

}  // namespace brim::cli
