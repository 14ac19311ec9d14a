// A moment on a device's stream: what was enqueued before it is done when it is.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace brim::device {

/// This thread's, of a device with streams.
inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// For a device with streams, so not the CPU. Nothing here but wait() makes the host wait.
class StreamEvent {
 public:
  /// Now, on the device's current stream.
  static std::shared_ptr<const StreamEvent> now(c10::Device device) {
    return now_on(current_stream(device));
  }
  static std::shared_ptr<const StreamEvent> now_on(const c10::Stream& stream) {
    auto event = std::make_shared<StreamEvent>(stream.device());
    event->event_.record(stream);
    return event;
  }
  explicit StreamEvent(c10::Device device)
      : event_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {}  // timed

  bool is_done() const { return event_.query(); }
  void wait() const { event_.synchronize(); }
  /// Between two that are done.
  double seconds_to(const StreamEvent& later) const {
    return event_.elapsedTime(later.event_) / 1000;
  }

 private:
  c10::Event event_;
};

}  // namespace brim::device
