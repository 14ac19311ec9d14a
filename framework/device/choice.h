// Which device a run trains on.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "framework/recipe/fields.h"

namespace brim::device {

struct DeviceConfig {
  std::string select = "auto";
  void fields(recipe::Fields& f);
};

/// "auto": the first CUDA device, or the CPU where there is none; "cpu"; "cuda"; "cuda:N" or "N",
/// as CUDA_VISIBLE_DEVICES numbers them. Makes a CUDA device current. Throws Error(kRecipe) for
/// other words, Error(kResource) for a device that isn't there.
c10::Device choose_device(const std::string& select);

}  // namespace brim::device
