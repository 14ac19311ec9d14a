#include "framework/distributed/compute_timer.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "framework/base/units.h"

namespace brim::distributed {

ComputeTimer::Moment ComputeTimer::now() const {
  Moment moment{.host_s = now_s(), .event = {}};
  if (device_.is_cpu()) return moment;
  moment.event.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  moment.event->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return moment;
}

void ComputeTimer::start() { started_ = now(); }

void ComputeTimer::stop() {
  if (!started_) return;
  spans_.push_back({std::move(*started_), now()});
  started_.reset();
}

double ComputeTimer::take_s() {
  double seconds = 0;
  while (!spans_.empty()) {
    const Span& span = spans_.front();
    if (span.stop.event && !span.stop.event->query()) break;
    seconds += span.stop.event ? span.start.event->elapsedTime(*span.stop.event) / 1000
                               : span.stop.host_s - span.start.host_s;
    spans_.pop_front();
  }
  return seconds;
}

}  // namespace brim::distributed
