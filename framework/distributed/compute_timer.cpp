#include "framework/distributed/compute_timer.h"

#include <utility>

#include "framework/base/units.h"

namespace brim::distributed {

ComputeTimer::Moment ComputeTimer::now() const {
  return {now_s(), device_.is_cpu() ? nullptr : device::StreamEvent::now(device_)};
}

void ComputeTimer::start() { started_ = now(); }

void ComputeTimer::stop() {
  if (!started_) return;
  spans_.push_back({std::move(*started_), now()});
  stopped_at_ = spans_.back().stop.event;
  started_.reset();
}

double ComputeTimer::take_s() {
  double seconds = 0;
  while (!spans_.empty()) {
    const Span& span = spans_.front();
    if (span.stop.event && !span.stop.event->is_done()) break;
    seconds += span.stop.event ? span.start.event->seconds_to(*span.stop.event)
                               : span.stop.host_s - span.start.host_s;
    spans_.pop_front();
  }
  return seconds;
}

}  // namespace brim::distributed
