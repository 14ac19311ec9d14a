// How many cores and GPUs this process may use, without CUDA or NVML.
#pragma once

#include <filesystem>

namespace brim::launch {

/// Cores of the affinity mask, no more than the cgroup's quota of processor time (v1 and v2, the
/// smallest on the way up); at least 1. `root` is where the machine's /proc and /sys are found.
int usable_cores(const std::filesystem::path& root = "/");

/// GPUs with a device file, no more than CUDA_VISIBLE_DEVICES names.
int visible_gpus(const std::filesystem::path& root = "/");

}  // namespace brim::launch
