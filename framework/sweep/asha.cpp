#include "framework/sweep/asha.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace brim::sweep {
namespace {

/// Whether the trial has come to the end of `rung`, or failed on the way there.
bool is_in(const Trial& trial, size_t rung) {
  return trial.results.size() > rung ||
         (trial.state == State::kFailed && trial.results.size() == rung);
}

std::optional<size_t> promotion(const Plan& plan, std::span<const Trial> trials, size_t rung) {
  std::vector<size_t> members;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (is_in(trials[i], rung)) members.push_back(i);
  }
  // The best first, of equals the first one; those that failed last.
  std::ranges::stable_sort(members, [&](size_t a, size_t b) {
    const bool has_a = trials[a].results.size() > rung;
    const bool has_b = trials[b].results.size() > rung;
    if (!has_a || !has_b) return has_a && !has_b;
    return plan.is_better(trials[a].results[rung].metric, trials[b].results[rung].metric);
  });
  members.resize(members.size() / static_cast<size_t>(plan.reduction));
  const auto paused = std::ranges::find_if(members, [&](size_t i) {
    return trials[i].state == State::kPaused && trials[i].results.size() == rung + 1;
  });
  return paused == members.end() ? std::nullopt : std::optional(*paused);
}

std::optional<size_t> first_in(std::span<const Trial> trials, State state) {
  const auto found = std::ranges::find(trials, state, &Trial::state);
  if (found == trials.end()) return std::nullopt;
  return static_cast<size_t>(found - trials.begin());
}

/// With few trials none would be among the best of a high rung: where all others have paused or
/// failed and none is done, the best of the highest rung.
std::optional<size_t> best_paused(const Plan& plan, std::span<const Trial> trials) {
  std::optional<size_t> best;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (trials[i].state == State::kRunning || trials[i].state == State::kDone) return std::nullopt;
    if (trials[i].state != State::kPaused) continue;
    if (!best) best = i;
    const auto& [own, other] = std::tie(trials[i].results, trials[*best].results);
    const bool is_higher = own.size() > other.size();
    const bool is_better =
        own.size() == other.size() && plan.is_better(own.back().metric, other.back().metric);
    if (is_higher || is_better) best = i;
  }
  return best;
}

}  // namespace

std::optional<size_t> next_trial(const Plan& plan, std::span<const Trial> trials) {
  if (const auto stopped = first_in(trials, State::kStopped)) return stopped;
  for (size_t rung = plan.rungs.size(); rung-- > 0;) {
    if (const auto promoted = promotion(plan, trials, rung)) return promoted;
  }
  if (const auto waiting = first_in(trials, State::kWaiting)) return waiting;
  return best_paused(plan, trials);
}

int64_t next_end(const Plan& plan, const Trial& trial) {
  if (trial.results.size() >= plan.rungs.size()) return trial.steps;
  return std::min(plan.rungs[trial.results.size()] * trial.steps_per_epoch, trial.steps);
}

}  // namespace brim::sweep
