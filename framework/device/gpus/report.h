// A GPU's reading for people and for programs, as `trainer devices` shows it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "framework/device/gpus/gpu_reading.h"

namespace brim::device {

/// Lines that begin with "GPU 0  NVIDIA H100 …"; what is not known is left out.
std::string describe(const GpuReading& gpu);

/// Every value by its name with its unit; null where it is not known.
nlohmann::json to_json(const GpuReading& gpu);

}  // namespace brim::device
