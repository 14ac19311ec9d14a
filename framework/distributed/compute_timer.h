// How long a rank's own work of a step takes on its device, without a wait for it: on CUDA between
// two events of the stream, read once they have passed; on the CPU by the clock.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <deque>
#include <optional>

namespace brim::distributed {

/// Belongs to the thread that drives the step.
class ComputeTimer {
 public:
  explicit ComputeTimer(c10::Device device) : device_(device) {}

  /// At the first forward of a step, and when backward has filled the last bucket. A start without
  /// a stop is forgotten.
  void start();
  void stop();

  /// Seconds of the steps that have ended on the device since the last call.
  double take_s();

 private:
  struct Moment {
    double host_s = 0;
    std::optional<c10::Event> event;  // on CUDA
  };
  struct Span {
    Moment start, stop;
  };
  Moment now() const;

  c10::Device device_;
  std::optional<Moment> started_;
  std::deque<Span> spans_;
};

}  // namespace brim::distributed
