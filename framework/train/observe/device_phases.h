// The phases of steps on a GPU, from events on the stream of the step where the timeline's begin.
#pragma once

#include <c10/core/Stream.h>

#include <memory>

#include "framework/base/timeline.h"
#include "framework/device/stream_event.h"
#include "framework/train/observe/phase_spans.h"

namespace brim::train {

/// Belongs to the thread that drives the step; the timeline outlives it. All moments are on the
/// stream that is current as it is made: batches are copied on another one, which neither waits for
/// the step nor is waited for by its end.
class DevicePhases final : public PhaseObserver, public PhaseSpans<device::StreamEvent> {
 public:
  DevicePhases(Timeline& timeline, const c10::Stream& stream)
      : PhaseSpans(device::StreamEvent::now_on(stream)), timeline_(timeline), stream_(stream) {
    timeline_.observe(*this);
  }
  ~DevicePhases() override { timeline_.forget(*this); }
  DevicePhases(const DevicePhases&) = delete;
  DevicePhases& operator=(const DevicePhases&) = delete;

  void begins(Phase phase) override { begin(phase, device::StreamEvent::now_on(stream_)); }
  void end_step() { PhaseSpans::end_step(device::StreamEvent::now_on(stream_)); }

 private:
  Timeline& timeline_;
  c10::Stream stream_;
};

}  // namespace brim::train
