// The phases of steps on a GPU, from events on its stream where the timeline's begin.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "framework/base/timeline.h"
#include "framework/device/stream_event.h"
#include "framework/train/observe/phase_spans.h"

namespace brim::train {

/// Belongs to the thread that drives the step; the timeline outlives it.
class DevicePhases final : public PhaseObserver, public PhaseSpans<device::StreamEvent> {
 public:
  DevicePhases(Timeline& timeline, c10::Device device)
      : PhaseSpans(device::StreamEvent::now(device)), timeline_(timeline), device_(device) {
    timeline_.observe(*this);
  }
  ~DevicePhases() override { timeline_.forget(*this); }
  DevicePhases(const DevicePhases&) = delete;
  DevicePhases& operator=(const DevicePhases&) = delete;

  void begins(Phase phase) override { begin(phase, device::StreamEvent::now(device_)); }
  void end_step() { PhaseSpans::end_step(device::StreamEvent::now(device_)); }

 private:
  Timeline& timeline_;
  c10::Device device_;
};

}  // namespace brim::train
