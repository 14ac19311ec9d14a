// `trainer --devices 0,1,2,3`: without a launcher, the trainer starts a rank for each device
// itself, as trainrun does.
#pragma once

#include <optional>

#include "framework/cli/options.h"

namespace brim::cli {

/// Runs this program once for each of the devices in --devices, where they are several ("0,2", or
/// "cpu,cpu"), and returns the exit status; nullopt where this process is to train. Throws
/// Error(kRecipe) for a list that makes no sense, or under a launcher.
std::optional<int> launch_ranks(const cxxopts::ParseResult& options, int argc, char** argv);

}  // namespace brim::cli
