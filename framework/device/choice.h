// Which device a run trains on.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "framework/recipe/fields.h"

namespace brim::device {

struct DeviceConfig {
  std::string select = "auto";
  double memory_fraction = 1;  // of the device; 1: what is free
  double memory_gib = 0;       // 0: as memory_fraction says
  void fields(recipe::Fields& f);
};

/// "auto": the CUDA device with the number `local_rank`, or the CPU where there is none; "cpu";
/// "cuda": that CUDA device; "cuda:N" or "N", for a rank alone on its machine. Numbers are as
/// CUDA_VISIBLE_DEVICES leaves them. Makes a CUDA device current. Throws Error(kRecipe) for other
/// words, Error(kResource) for a device that isn't there.
c10::Device choose_device(const std::string& select, int64_t local_rank = 0,
                          int64_t local_world = 1);

}  // namespace brim::device
