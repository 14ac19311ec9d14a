// Schedules and cuts of a pipeline, without any device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "framework/base/error.h"
#include "framework/distributed/stage_cut.h"
#include "framework/distributed/stage_schedule.h"

namespace brim::distributed {
namespace {

using std::vector;

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

/// What is wrong with a schedule, an entry a stage; empty where nothing is: each stage takes each
/// micro-batch forward and then backward once, each action's inputs come without a deadlock where
/// sends don't wait and receives do, messages between two stages are received in the order in which
/// they are sent, and no stage holds more than live_micro_batches().
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

vector<StageActions> schedule_of(ScheduleKind kind, int64_t stages, int64_t micro_batches) {
  vector<StageActions> schedule;
  for (int64_t stage = 0; stage < stages; ++stage) {
    schedule.push_back(stage_actions(kind, stages, stage, micro_batches));
  }
  return schedule;
}

int64_t most_live(const StageActions& actions) {
  int64_t live = 0, most = 0;
  for (const StageAction& action : actions) {
    live += action.is_backward ? -1 : 1;
    most = std::max(most, live);
  }
  return most;
}

TEST(StageSchedule, EveryScheduleIsSound) {
  for (const ScheduleKind kind : {ScheduleKind::k1F1B, ScheduleKind::kGpipe}) {
    for (int64_t stages = 1; stages <= 9; ++stages) {
      for (int64_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        const auto schedule = schedule_of(kind, stages, micro_batches);
        EXPECT_EQ(problem_of(schedule, kind, micro_batches), "")
            << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(StageSchedule, OneForwardOneBackwardHoldsAsManyAsThereAreStagesFromItOn) {
  const auto schedule = schedule_of(ScheduleKind::k1F1B, 4, 12);
  for (size_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(most_live(schedule[stage]), 4 - static_cast<int64_t>(stage));
  }
  EXPECT_EQ(most_live(stage_actions(ScheduleKind::kGpipe, 4, 2, 12)), 12);
}

TEST(StageSchedule, OneForwardOneBackwardInWords) {
  const StageAction f0{false, 0}, f1{false, 1}, f2{false, 2}, b0{true, 0}, b1{true, 1}, b2{true, 2};
  EXPECT_EQ(stage_actions(ScheduleKind::k1F1B, 2, 0, 3), (StageActions{f0, f1, b0, f2, b1, b2}));
  EXPECT_EQ(stage_actions(ScheduleKind::k1F1B, 2, 1, 3), (StageActions{f0, b0, f1, b1, f2, b2}));
  EXPECT_EQ(stage_actions(ScheduleKind::kGpipe, 2, 1, 3), (StageActions{f0, f1, f2, b0, b1, b2}));
}

TEST(StageSchedule, TheCheckFindsWhatIsWrong) {
  const auto kind = ScheduleKind::k1F1B;
  auto schedule = schedule_of(kind, 2, 3);
  std::swap(schedule[0][0], schedule[0][2]);  // backward before forward
  EXPECT_EQ(problem_of(schedule, kind, 3), "stage 0: backward of micro-batch 0 comes out of turn");

  schedule = schedule_of(kind, 2, 3);
  schedule[1].pop_back();
  EXPECT_EQ(problem_of(schedule, kind, 3), "stage 1: a micro-batch is left out");

  schedule = schedule_of(kind, 2, 3);
  schedule[1] = stage_actions(ScheduleKind::kGpipe, 2, 1, 3);
  EXPECT_EQ(problem_of(schedule, kind, 3), "stage 1: 2 micro-batches are live, more than 1");

  schedule = schedule_of(kind, 2, 2);
  schedule[1] = {{false, 1}, {true, 1}, {false, 0}, {true, 0}};
  EXPECT_EQ(problem_of(schedule, kind, 2),
            "stage 1: its messages are in another order than stage 0's");

  // Stage 0 wants a gradient that stage 1 only makes after what stage 0 sends next.
  schedule = {{{false, 0}, {true, 0}, {false, 1}, {true, 1}},
              {{false, 0}, {false, 1}, {true, 0}, {true, 1}}};
  EXPECT_EQ(problem_of(schedule, ScheduleKind::kGpipe, 2),
            "stage 0: backward of micro-batch 0 never has its input");
}

vector<PartCost> parts_of(const vector<double>& work) {
  vector<PartCost> parts;
  for (size_t i = 0; i < work.size(); ++i) {
    const std::string name = "h." + std::to_string(i);
    parts.push_back(
        {.name = name, .work = work[i], .activation_bytes = 1, .state_bytes = {{name, 10}}});
  }
  return parts;
}

double slowest(const vector<double>& work, vector<size_t> cut) {
  double most = 0;
  cut.push_back(work.size());
  for (size_t s = 0; s + 1 < cut.size(); ++s) {
    double sum = 0;
    for (size_t i = cut[s]; i < cut[s + 1]; ++i) sum += work[i];
    most = std::max(most, sum);
  }
  return most;
}

TEST(StageCut, TheSlowestStageIsAsFastAsAnyCutMakesIt) {
  const vector<double> work = {5, 1, 1, 8, 2, 2, 2, 1, 9};
  const auto cut = cut_into_stages(parts_of(work), {.stages = 3, .live = {3, 2, 1}});
  double best = 1e9;
  for (size_t a = 1; a < work.size(); ++a) {
    for (size_t b = a + 1; b < work.size(); ++b) best = std::min(best, slowest(work, {0, a, b}));
  }
  EXPECT_EQ(cut.size(), 3U);
  EXPECT_EQ(slowest(work, cut), best);
}

TEST(StageCut, AStageEach) {
  const auto cut = cut_into_stages(parts_of({1, 1, 1}), {.stages = 3, .live = {3, 2, 1}});
  EXPECT_EQ(cut, (vector<size_t>{0, 1, 2}));
}

TEST(StageCut, NoStageNeedsMoreThanTheCap) {
  auto parts = parts_of({9, 1, 1, 1, 1, 1});
  const CutOptions free{.stages = 2, .live = {2, 1}};
  EXPECT_EQ(cut_into_stages(parts, free), (vector<size_t>{0, 1}));
  CutOptions capped = free;
  capped.cap_bytes = 45;  // state of four parts, and their activations once
  EXPECT_EQ(cut_into_stages(parts, capped), (vector<size_t>{0, 2}));
  capped.cap_bytes = 30;  // three parts each, and no room for their activations
  EXPECT_EQ(cut_into_stages(parts, capped), (vector<size_t>{0, 3}));
  capped.cap_bytes = 29;
  EXPECT_THROW(cut_into_stages(parts, capped), Error);
  // Shared state counts once in a stage.
  parts[1].state_bytes = parts[2].state_bytes = parts[0].state_bytes;
  EXPECT_EQ(cut_into_stages(parts, capped), (vector<size_t>{0, 4}));
}

TEST(StageCut, IsToldInWords) {
  auto parts = parts_of({1, 1, 1, 1});
  parts.insert(parts.begin(), {.name = "stem", .work = 1});
  parts.push_back({.name = "head", .work = 5});
  for (PartCost& part : parts) {
    if (part.name.starts_with("h.")) part.name = "transformer." + part.name;
  }
  EXPECT_EQ(describe_cut(parts, {0, 4, 5}),
            (vector<std::string>{"stage 0: stem, transformer.h.0 … transformer.h.2 (40 %)",
                                 "stage 1: transformer.h.3 (10 %)", "stage 2: head (50 %)"}));
}

}  // namespace
}  // namespace brim::distributed
