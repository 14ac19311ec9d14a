// `trainer --devices 0,1,2,3`: without a launcher, the trainer chooses its devices and starts a
// rank for each itself, as trainrun does.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <span>

#include "framework/device/config.h"
#include "framework/device/gpus/selection.h"
#include "framework/distributed/ranks.h"

namespace brim::cli {

/// The devices of a run that no launcher has placed, said on stderr. Sets CUDA_VISIBLE_DEVICES to
/// them, and `config.select` to what is left for choose_device() to do. Hold the result while the
/// run runs. Throws as select_devices() does.
device::Selection place(device::DeviceConfig& config);

/// Where this process trains.
struct RankDevice {
  distributed::Ranks ranks;
  device::Selection selection;  // its locks last as long as this
  c10::Device device{c10::kCPU};
};

/// Without a launcher `placement` is what the config selects; where that is several devices, runs
/// this program with these arguments once for each and returns the exit status. nullopt: continue
/// there. Under a launcher it is the rank's device; throws Error(kRecipe) where another launcher
/// than this has started the rank and the config names several.
std::optional<int> start_ranks(const device::DeviceConfig& config, std::span<char* const> arguments,
                               RankDevice& placement);

}  // namespace brim::cli
