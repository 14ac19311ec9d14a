// One trial of a sweep: a run of the recipe with some keys set, and how far it has come.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace brim::sweep {

/// Of steps and epochs: a product of two still is a number of 64 bits.
inline constexpr int64_t kMaxCount = int64_t{1} << 31;
/// In a row, after which a trial is given up.
inline constexpr int64_t kMaxFailures = 2;

enum class State {
  kWaiting,    // not begun
  kRunning,    // a process trains it
  kStopped,    // begun, and to be continued from its newest checkpoint before others begin
  kPaused,     // at the end of a rung: continued where it is among the rung's best
  kDone,       // trained to its end
  kFailed,     // given up after its failures
  kCancelled,  // by the user
};
inline constexpr std::array<std::string_view, 7> kStateWords = {
    "waiting", "running", "stopped", "paused", "done", "failed", "cancelled"};

constexpr std::string_view word_of(State state) { return kStateWords[static_cast<size_t>(state)]; }

/// What the evaluations up to a step say.
struct RungResult {
  int64_t step = 0;
  double metric =
      0.0;  // of a rung but the last: the latest, by which trials compare; else the best
};

struct Trial {
  int64_t id = 0;                          // from 1 on
  std::vector<std::string> settings = {};  // "optimizer.learning_rate=0.01", as --set takes them
  std::string recipe = {};                 // resolved, with the settings
  int64_t steps = 0;                       // of the whole run; 0: as the recipe says, without rungs
  int64_t steps_per_epoch = 0;             // 0 without rungs
  int64_t schedule_steps = 0;              // what the schedule is laid out for; 0 without rungs
  State state = State::kWaiting;
  int64_t failures = 0;                   // in a row
  std::string reason = {};                // of the last failure
  double seconds = 0.0;                   // that its processes ran
  std::vector<RungResult> results = {};   // of the rungs it has finished, the whole run's last
  std::optional<RungResult> so_far = {};  // of one that has not ended well: Store::look_at_runs()

  /// Null before the first result.
  const RungResult* last() const {
    if (so_far) return &*so_far;
    return results.empty() ? nullptr : &results.back();
  }
};

/// Whether it may still run.
inline bool is_unfinished(const Trial& trial) {
  return trial.state != State::kDone && trial.state != State::kFailed &&
         trial.state != State::kCancelled;
}

}  // namespace brim::sweep
