// Which cores each rank of this node may run on.
#pragma once

#include <filesystem>
#include <vector>

#include "framework/launch/options.h"

namespace brim::launch {

using Cores = std::vector<int>;  // as the kernel numbers them; empty: not bound

/// The cores of each local rank, from those this process may use. kCores: equal slices in the order
/// package, core, hardware thread, so that a rank owns whole cores where there are enough. kNuma:
/// ranks in equal blocks over the NUMA nodes, each with its slice of one node (of several where
/// there are fewer ranks than nodes). Cores left over by the division go to the first ranks.
/// Throws Error(kRecipe) where there are more ranks than cores. `root` holds the machine's /sys.
std::vector<Cores> bind_ranks(Bind bind, int ranks, const Cores& allowed,
                              const std::filesystem::path& root = "/");

/// The cores of this process's affinity mask.
Cores allowed_cores();

}  // namespace brim::launch
