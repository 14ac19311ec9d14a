// The [distributed] section.
#pragma once

#include <chrono>

#include "framework/distributed/data_parallel.h"
#include "framework/recipe/fields.h"

namespace brim::distributed {

/// How a step's samples are split: in equal numbers; by what each rank shows it can do; in equal
/// numbers whose lengths add up to equal sums.
enum class Balance { kEven, kThroughput, kCost };

struct DistributedConfig {
  Backend backend = Backend::kAuto;
  bool zero = false;
  Balance balance = Balance::kEven;
  DataParallelOptions gradients;
  bool sync_batch_norm = false;
  double timeout_s = 600;

  void fields(recipe::Fields& f);
  std::chrono::milliseconds limit() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  }
  bool operator==(const DistributedConfig&) const = default;
};

}  // namespace brim::distributed
