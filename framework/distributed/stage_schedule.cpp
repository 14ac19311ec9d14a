#include "framework/distributed/stage_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace brim::distributed {
namespace {

/// The micro-batches of a stage's forward or backward passes, in its order.
std::vector<int64_t> order_of(const StageActions& actions, bool is_backward) {
  std::vector<int64_t> order;
  for (const StageAction& action : actions) {
    if (action.is_backward == is_backward) order.push_back(action.micro_batch);
  }
  return order;
}

std::string text_of(const StageAction& action) {
  return fmt::format("{} of micro-batch {}", action.is_backward ? "backward" : "forward",
                     action.micro_batch);
}

/// Each micro-batch forward, then backward, once; no more of them in between than allowed.
std::string problem_of_stage(const StageActions& actions, int64_t micro_batches, int64_t most) {
  std::vector<int> passes(static_cast<size_t>(micro_batches));
  int64_t live = 0;
  for (const StageAction& action : actions) {
    const bool is_known = action.micro_batch >= 0 && action.micro_batch < micro_batches;
    if (!is_known || passes[static_cast<size_t>(action.micro_batch)]++ != int{action.is_backward}) {
      return text_of(action) + " comes out of turn";
    }
    live += action.is_backward ? -1 : 1;
    if (live > most) return fmt::format("{} micro-batches are live, more than {}", live, most);
  }
  const bool is_whole = std::ranges::all_of(passes, [](int count) { return count == 2; });
  return is_whole ? std::string() : "a micro-batch is left out";
}

/// Runs all stages; the first action that never gets its input.
std::string find_deadlock(const std::vector<StageActions>& schedule) {
  const auto stages = static_cast<int64_t>(schedule.size());
  std::vector<size_t> next(schedule.size());
  std::vector<std::vector<int64_t>> done_forward(schedule.size()), done_backward(schedule.size());
  const auto has = [](const std::vector<int64_t>& list, int64_t micro_batch) {
    return std::ranges::find(list, micro_batch) != list.end();
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t stage = 0; stage < schedule.size(); ++stage) {
      if (next[stage] == schedule[stage].size()) continue;
      const StageAction action = schedule[stage][next[stage]];
      const bool has_input = action.is_backward
                                 ? static_cast<int64_t>(stage) + 1 == stages ||
                                       has(done_backward[stage + 1], action.micro_batch)
                                 : stage == 0 || has(done_forward[stage - 1], action.micro_batch);
      if (!has_input) continue;
      (action.is_backward ? done_backward : done_forward)[stage].push_back(action.micro_batch);
      ++next[stage];
      moves = true;
    }
  }
  for (size_t stage = 0; stage < schedule.size(); ++stage) {
    if (next[stage] == schedule[stage].size()) continue;
    return fmt::format("stage {}: {} never has its input", stage,
                       text_of(schedule[stage][next[stage]]));
  }
  return {};
}

}  // namespace

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

std::string problem_of(const std::vector<StageActions>& schedule, ScheduleKind kind,
                       int64_t micro_batches) {
  const auto stages = static_cast<int64_t>(schedule.size());
  for (int64_t stage = 0; stage < stages; ++stage) {
    const auto& actions = schedule[static_cast<size_t>(stage)];
    const std::string problem = problem_of_stage(
        actions, micro_batches, live_micro_batches(kind, stages, stage, micro_batches));
    if (!problem.empty()) return fmt::format("stage {}: {}", stage, problem);
    for (const bool is_backward : {false, true}) {
      if (order_of(actions, is_backward) == order_of(schedule.front(), is_backward)) continue;
      return fmt::format("stage {}: its messages are in another order than stage 0's", stage);
    }
  }
  return find_deadlock(schedule);
}

}  // namespace brim::distributed
