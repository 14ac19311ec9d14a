// `trainer --devices 0,1,2,3`: without a launcher, the trainer chooses its devices and starts a
// rank for each itself, as trainrun does.
#pragma once

#include <optional>

#include "framework/device/config.h"
#include "framework/device/selection.h"

namespace brim::cli {

/// The devices of a run that no launcher has placed, said on stderr. Sets CUDA_VISIBLE_DEVICES to
/// them, and `config.select` to what is left for choose_device() to do. Hold the result while the
/// run runs. Throws as select_devices() does.
device::Selection place(device::DeviceConfig& config);

/// Runs this program once for each of the selection's ranks, where they are several, and returns
/// the exit status; nullopt where this process is to train.
std::optional<int> launch_ranks(const device::Selection& selection, int argc, char** argv);

/// Throws Error(kRecipe) where `config` names several devices: under a launcher each rank has one.
void require_one_device(const device::DeviceConfig& config);

}  // namespace brim::cli
