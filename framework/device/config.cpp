#include "framework/device/config.h"

#include <array>
#include <string_view>

namespace brim::device {

void DeviceConfig::fields(recipe::Fields& f) {
  f.value(
      "select", select,
      "\"auto\": an idle GPU, or the CPU where there is none; \"cpu\"; a GPU as \"0\" or by the "
      "beginning of its UUID; several as \"0,1\", a rank each");
  f.value("memory_fraction", memory_fraction,
          "share of the device's memory that the job may take; 1: what is free at its start",
          {.low = 0, .high = 1, .low_open = true});
  f.value("memory_gib", memory_gib, "GiB that the job may take; 0: as memory_fraction says",
          recipe::at_least(0));
  static constexpr std::array<std::string_view, 3> kFallback = {"error", "other_gpu", "cpu"};
  f.choice("fallback", fallback, kFallback,
           "where the GPU that was asked for is not there or, for auto, none is idle: stop, take "
           "another GPU, or take the CPU, with a warning");
  f.value("idle_free_memory", idle_free_memory,
          "share of a GPU's memory that is free where auto calls it idle", recipe::between(0, 1));
  f.value("idle_utilisation", idle_utilisation,
          "share of the time in which a GPU may be at work where auto calls it idle",
          recipe::between(0, 1));
}

}  // namespace brim::device
