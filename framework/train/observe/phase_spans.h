// The phases of steps as a device saw them, which works behind the host: the times between events
// of its stream, known once it has passed them.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "framework/base/timeline.h"

namespace brim::train {

/// Event: something on the stream that can tell `bool is_done() const`, `void wait() const`, and
/// `double seconds_to(const Event& later) const` of two that are done.
template <class Event>
class PhaseSpans {
 public:
  using Moment = std::shared_ptr<const Event>;

  explicit PhaseSpans(Moment now) { marks_.push_back({Phase::kOther, std::move(now), false}); }

  /// From `at` on, later than every moment given before, the device is in `phase`.
  void begin(Phase phase, Moment at) { marks_.push_back({phase, std::move(at), false}); }

  /// A step ends; the phase continues in the next one.
  void end_step(Moment at) { marks_.push_back({marks_.back().phase, std::move(at), true}); }

  /// Seconds by phase of the oldest step that has ended; they sum to its time on the device.
  /// Without `wait`, nullopt until the device is through with it.
  std::optional<std::array<double, kPhaseCount>> pop(bool wait) {
    size_t end = 1;
    while (end < marks_.size() && !marks_[end].ends_step) ++end;
    if (end >= marks_.size()) return std::nullopt;
    if (wait) {
      marks_[end].at->wait();
    } else if (!marks_[end].at->is_done()) {
      return std::nullopt;
    }
    std::array<double, kPhaseCount> seconds{};
    for (size_t i = 0; i < end; ++i) {
      seconds[static_cast<size_t>(marks_[i].phase)] += marks_[i].at->seconds_to(*marks_[i + 1].at);
    }
    marks_.erase(marks_.begin(), marks_.begin() + static_cast<std::ptrdiff_t>(end));
    marks_.front().ends_step = false;
    return seconds;
  }

 private:
  struct Mark {
    Phase phase;  // that begins here
    Moment at;
    bool ends_step;
  };
  std::deque<Mark> marks_;
};

}  // namespace brim::train
