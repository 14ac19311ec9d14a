// How many GPUs this process may use, without CUDA or NVML.
#pragma once

#include <filesystem>

namespace brim::launch {

/// GPUs with a device file, no more than CUDA_VISIBLE_DEVICES names. `root` is where /dev is found.
int visible_gpus(const std::filesystem::path& root = "/");

}  // namespace brim::launch
