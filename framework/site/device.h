// A device as the rules of a machine name it, whatever CUDA_VISIBLE_DEVICES makes of its number.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/device/gpus/device_list.h"
#include "framework/device/gpus/selection.h"

namespace brim::site {

struct Device {
  std::string word = "cpu";       // or a GPU's or slice's UUID, or its index where it tells none
  std::optional<int> index = {};  // of a GPU, by PCI bus, where it is known

  bool is_cpu() const { return word == "cpu"; }
  /// "the CPU", "GPU 1".
  std::string shown() const;
  /// By "cpu", an index, or the beginning of a UUID.
  bool is_named(std::string_view name) const;
};

/// Whether a rule may name a device so.
bool is_device_name(std::string_view name);

Device device_of(const device::VisibleGpu& gpu);

/// The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; without NVML as many as it lists, or as
/// `at_least` says.
std::vector<Device> visible_devices(const device::Census& census, const char* cuda_visible_devices,
                                    size_t at_least);

/// "GPU 0, GPU 2", "the CPU for 2 ranks".
std::string shown(const std::vector<Device>& devices);

/// How many devices these are: a GPU counts once, the CPU once for each rank.
size_t count_distinct(const std::vector<Device>& devices);

}  // namespace brim::site
