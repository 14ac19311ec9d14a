// `trainer --devices 0,1,2,3`: without a launcher, the trainer chooses its devices and starts a
// rank for each itself, as trainrun does.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <span>
#include <string>

#include "framework/cli/placement.h"
#include "framework/device/config.h"
#include "framework/distributed/ranks.h"
#include "framework/site/watch.h"

namespace brim::cli {

/// Where this process trains.
struct RankDevice {
  distributed::Ranks ranks;
  Placement placement;  // empty in a rank that this program has started
  c10::Device device{c10::kCPU};
  std::optional<site::Watch> watch = {};  // stops the run where a rule says so
};

/// Without a launcher `here` is what the config selects; where that is several devices, runs this
/// program with these arguments once for each and returns the exit status. nullopt: continue there,
/// with `config` bounded by the rules of the machine. Where training has to leave its devices to
/// others, it is started again when they are free. Under a launcher it is the rank's device; throws
/// Error(kRecipe) where another launcher than this has started the rank and the config names
/// several. `run` is the run's name.
std::optional<int> start_ranks(device::DeviceConfig& config, const std::string& run,
                               std::span<char* const> arguments, RankDevice& here);

}  // namespace brim::cli
