// What a checkpoint says of the samples that its weights have seen: all that decides which sample
// was at which place, but for the data themselves. Checked, so that a damaged file asks for no more
// memory or time than a large run would.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/train/run/history.h"

namespace brim::train {

struct SampleRecord {
  int64_t step = 0;     // finished steps
  int64_t samples = 0;  // of the training data
  int64_t global_batch = 1;
  uint64_t seed = 0;
  bool drop_last = false;
  std::string order;  // data::Order::text()
  History history;

  int64_t steps_per_epoch() const;
  /// Those that the steps have begun.
  int64_t epochs() const;
  /// Finished steps of an epoch, counted from 0.
  int64_t steps_of(int64_t epoch) const;
  /// Positions of an epoch that the first `steps` steps of it take.
  int64_t positions_of(int64_t steps) const;
  /// Null where the step, counted from 1, was taken by a Brim that kept no history.
  const HistoryPart* part_of(int64_t step) const;
};

/// Throws Error(kCheckpoint) where the checkpoint is damaged or says what no run writes.
SampleRecord read_sample_record(const std::filesystem::path& checkpoint);

/// Steps that were computed again because the process that had taken them before left no checkpoint
/// of them, as far as its metrics tell.
struct RepeatedSteps {
  int64_t after_step = 0;
  int64_t last_step = 0;
};

/// What run.json tells of repeated steps, the oldest first; nothing of parts of it that are
/// damaged.
std::vector<RepeatedSteps> read_repeated_steps(const nlohmann::json& run);

}  // namespace brim::train
