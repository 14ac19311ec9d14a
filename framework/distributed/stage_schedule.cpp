#include "framework/distributed/stage_schedule.h"

#include <algorithm>

namespace brim::distributed {

int64_t live_micro_batches(ScheduleKind kind, int64_t stages, int64_t stage,
                           int64_t micro_batches) {
  return kind == ScheduleKind::kGpipe ? micro_batches : std::min(stages - stage, micro_batches);
}

StageActions stage_actions(ScheduleKind kind, int64_t stages, int64_t stage,
                           int64_t micro_batches) {
  // As many forward passes ahead as may be live, of which the last belongs to the first pair.
  const int64_t ahead = live_micro_batches(kind, stages, stage, micro_batches) - 1;
  StageActions actions;
  for (int64_t i = 0; i < ahead; ++i) actions.push_back({.is_backward = false, .micro_batch = i});
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i + ahead < micro_batches) {
      actions.push_back({.is_backward = false, .micro_batch = i + ahead});
    }
    actions.push_back({.is_backward = true, .micro_batch = i});
  }
  return actions;
}

}  // namespace brim::distributed
