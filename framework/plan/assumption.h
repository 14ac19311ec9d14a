// Devices and links that are not there, for `trainer plan --assume`: what their makers publish.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/plan/step_time.h"

namespace brim::plan {

struct Assumption {
  int64_t devices = 1;
  std::string device;  // "H100-80GB"
  std::string gpu;     // as device::peak_flops() knows it
  int64_t memory_bytes = 0;
  double bytes_per_s = 0;     // of its memory
  std::string link, network;  // "nvlink4", "400gbit"; the same where one is given
  Network between;            // the devices

  /// "8 × H100-80GB, nvlink4".
  std::string text() const;
};

/// "8xH100-80GB,nvlink": so many devices of a kind, by "-40GB" of those that have that memory, the
/// link between those of a machine, which holds 8, and after another comma the one between
/// machines. Throws UsageError listing what there is.
Assumption read_assumption(std::string_view text);

}  // namespace brim::plan
