// The [distributed] section.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "framework/distributed/data_parallel.h"
#include "framework/distributed/stage_schedule.h"
#include "framework/recipe/fields.h"

namespace brim::distributed {

/// How a step's samples are split: in equal numbers; by what each rank shows it can do; in equal
/// numbers whose lengths add up to equal sums.
enum class Balance { kEven, kThroughput, kCost };

/// Whether every rank keeps the whole model (data_parallel.h), or rows of it (fully_sharded.h); or
/// what a plan finds best as training starts, which then takes this key's place.
enum class StrategyKind { kDdp, kFsdp, kAuto };

struct DistributedConfig {
  Backend backend = Backend::kAuto;
  StrategyKind strategy = StrategyKind::kDdp;
  int64_t shards = 0;  // ranks that share one copy of the model; 0: all of them
  int64_t stages = 1;  // that the model is cut into, each on a rank of its own (pipeline.h)
  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::vector<std::string> cut = {};  // the first part of each later stage; empty: chosen
  bool zero = false;
  Balance balance = Balance::kEven;
  bool compares = false;  // each collective with the other ranks'
  DataParallelOptions gradients;
  bool sync_batch_norm = false;
  double timeout_s = 600;

  void fields(recipe::Fields& f);
  /// Throws Error(kRecipe) for keys that contradict each other.
  void check() const;
  bool is_pipeline() const { return stages > 1; }
  std::chrono::milliseconds limit() const {
    return std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  }
  bool operator==(const DistributedConfig&) const = default;

 private:
  void check_stages() const;
};

}  // namespace brim::distributed
