// Which GPUs a run that no one else has placed trains on: what the recipe asks for, what is there,
// what is idle, and what to do where these don't meet. Needs NVML, not CUDA.
#pragma once

#include <string>
#include <vector>

#include "framework/device/config.h"
#include "framework/device/gpus/gpu_lock.h"
#include "framework/device/gpus/gpu_reading.h"

namespace brim::device {

/// What NVML shows.
struct Census {
  std::vector<GpuReading> gpus;
  bool is_known = false;  // false: no NVML, and only CUDA can say what is there
};
Census take_census();

struct Selection {
  enum class Where {
    kCpu,
    kGpus,     // those in `visible`
    kCudaSays  // NVML is not here: CUDA's own numbers hold
  };
  Where where = Where::kCpu;
  int ranks = 1;
  std::string visible;                // for CUDA_VISIBLE_DEVICES; "": as it is
  bool is_auto = false;               // no one asked for a GPU
  std::vector<std::string> notes;     // for people: what was chosen
  std::vector<std::string> warnings;  // for people: what is not as asked
  std::vector<GpuLock> locks;         // hold them while the run runs
};

/// Throws Error(kRecipe) for a list that makes no sense or an index that is not there, and
/// Error(kResource) where nothing usable is there, both only where config.fallback allows no way
/// out. `cuda_visible_devices` is the variable's value or null.
Selection select_devices(const DeviceConfig& config, const Census& census,
                         const char* cuda_visible_devices);

}  // namespace brim::device
