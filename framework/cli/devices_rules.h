// What `trainer devices` shows of a machine that several people share: the rules in force, who
// holds what since when, and what idles while it is held.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/device/gpus/gpu_reading.h"

namespace brim::cli {

/// Adds "site", "held" and "idle" to the record of a reading. What each GPU did at earlier readings
/// of this user is kept in the cache.
void add_sharing(nlohmann::json& record, const std::vector<device::GpuReading>& gpus);

/// The same for people, of a record that has them.
std::string describe_sharing(const nlohmann::json& record);

}  // namespace brim::cli
