// The [device] section: where to train, and what to do where that can't be had.
#pragma once

#include <limits>
#include <string>

#include "framework/recipe/fields.h"

namespace brim::device {

/// What happens where the device that was asked for is not there or not usable.
enum class Fallback { kError, kOtherGpu, kCpu };

struct DeviceConfig {
  std::string select = "auto";
  Fallback fallback = Fallback::kError;
  double memory_fraction = 1;     // of the device; 1: what is free
  double memory_gib = 0;          // 0: as memory_fraction says
  double idle_free_memory = 0.9;  // of a GPU's memory, for "auto"
  double idle_utilisation = 0.1;  // of the time, for "auto"
  /// Of the rules of the machine, no key: more than this is not taken, whatever the others say.
  double max_memory_gib = std::numeric_limits<double>::infinity();
  void fields(recipe::Fields& f);
};

}  // namespace brim::device
