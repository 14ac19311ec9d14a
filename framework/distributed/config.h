// The [distributed] section.
#pragma once

#include <chrono>

#include "framework/distributed/data_parallel.h"
#include "framework/recipe/fields.h"

namespace brim::distributed {

enum class Balance { kEven, kThroughput };

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
