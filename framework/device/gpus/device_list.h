// What "device.select" and --devices may say, and what CUDA_VISIBLE_DEVICES leaves.
#pragma once

#include <string>
#include <vector>

#include "framework/device/gpus/gpu_reading.h"

namespace brim::device {

struct DeviceList {
  enum class Kind {
    kAuto,
    kCpu,     // as many ranks as the word "cpu" was given
    kGpus,    // a rank each
    kByRank,  // "cuda": the GPU with the number of the local rank
  };
  Kind kind = Kind::kAuto;
  int ranks = 1;
  std::vector<std::string> gpus;  // "0", "GPU-8932f937", "MIG-…", as they were given
};

/// Throws Error(kRecipe) for a list that makes no sense: other words, blanks, an empty place, one
/// device twice.
DeviceList parse_device_list(const std::string& list);

/// A GPU or MIG slice that CUDA_VISIBLE_DEVICES leaves.
struct VisibleGpu {
  std::string uuid;  // of the GPU or the slice; "" where the GPU doesn't tell
  GpuReading gpu;
  bool is_slice = false;

  /// What CUDA_VISIBLE_DEVICES calls it: the UUID, or the index where there is none.
  std::string word() const;
  /// "GPU 1 (NVIDIA H100)".
  std::string shown() const;
};

/// The GPUs in the order of the list, by CUDA's rules: reading stops at the first entry that names
/// nothing ("-1", an index too high, an ambiguous beginning of a UUID), a device given twice leaves
/// none, an empty list hides all. Null: no list, all of them. Indexes are by PCI bus, as in
/// nvidia-smi. A GPU with MIG on stands for its first slice, as in CUDA.
std::vector<VisibleGpu> visible_gpus(const std::vector<GpuReading>& gpus,
                                     const char* cuda_visible_devices);

}  // namespace brim::device
