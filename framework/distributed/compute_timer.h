// How long a rank's own work of a step takes on its device, without a wait for it: on CUDA between
// two events of the stream, read once they have passed; on the CPU by the clock.
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <memory>
#include <optional>

#include "framework/device/stream_event.h"

namespace brim::distributed {

/// Belongs to the thread that drives the step.
class ComputeTimer {
 public:
  explicit ComputeTimer(c10::Device device) : device_(device) {}

  /// Where the last span stopped on the device's stream; null on the CPU and before the first.
  std::shared_ptr<const device::StreamEvent> stopped_at() const { return stopped_at_; }

  /// At the first forward of a step, and when backward has filled the last bucket. A start without
  /// a stop is forgotten.
  void start();
  void stop();

  /// Seconds of the steps that have ended on the device since the last call.
  double take_s();

 private:
  struct Moment {
    double host_s = 0;
    std::shared_ptr<const device::StreamEvent> event;  // null on the CPU
  };
  struct Span {
    Moment start, stop;
  };
  Moment now() const;

  c10::Device device_;
  std::optional<Moment> started_;
  std::shared_ptr<const device::StreamEvent> stopped_at_;
  std::deque<Span> spans_;
};

}  // namespace brim::distributed
