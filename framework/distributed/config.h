// The [distributed] section.
#pragma once

#include <chrono>

#include "framework/distributed/data_parallel.h"
#include "framework/recipe/fields.h"

namespace brim::distributed {

/// How a step's samples are split: in equal numbers; by what each rank shows it can do; in equal
/// numbers whose lengths add up to equal sums.
enum class Balance { kEven, kThroughput, kCost };

/// Whether every rank keeps the whole model (data_parallel.h), or rows of it (fully_sharded.h).
enum class StrategyKind { kDdp, kFsdp };

struct DistributedConfig {
  Backend backend = Backend::kAuto;
  StrategyKind strategy = StrategyKind::kDdp;
  int64_t shards = 0;  // ranks that share one copy of the model; 0: all of them
  bool zero = false;
  Balance balance = Balance::kEven;
  DataParallelOptions gradients;
  bool sync_batch_norm = false;
  double timeout_s = 600;

  void fields(recipe::Fields& f);
  /// Throws Error(kRecipe) for keys that contradict each other.
  void check() const;
  std::chrono::milliseconds limit() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  }
  bool operator==(const DistributedConfig&) const = default;
};

}  // namespace brim::distributed
