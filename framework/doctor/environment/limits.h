// This process's limits, as /proc/self/limits tells them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/base/machine.h"

namespace brim::doctor::environment {

/// The soft limit of a line such as "Max open files"; nullopt: unlimited, or not told.
std::optional<int64_t> process_limit(const Machine& machine, std::string_view name);

}  // namespace brim::doctor::environment
