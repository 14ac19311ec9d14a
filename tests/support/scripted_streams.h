// A device whose streams have clocks that the test turns, under LibTorch's own streams and events:
// what CUDA does behind the host happens here when the test says so. It has no memory and no
// operators.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <map>

namespace brim {

inline const c10::Device kScriptedDevice{c10::DeviceType::PrivateUse1, 0};

class ScriptedStreams final : public c10::impl::DeviceGuardImplInterface {
 public:
  /// What is enqueued on the stream next takes that long.
  static void enqueue(const c10::Stream& stream, double seconds) { ends()[stream.id()] += seconds; }
  /// The device is through with what was to end by then.
  static void pass_until(double seconds) { now() = std::max(now(), seconds); }
  /// As new.
  static void reset() {
    ends().clear();
    now() = 0;
    current() = 0;
  }

  c10::DeviceType type() const override { return kScriptedDevice.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kScriptedDevice; }
  c10::Device getDevice() const override { return kScriptedDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream(current()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(++last()); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::StreamId before = current();
    current() = next.id();
    return stream(before);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new double;
    *static_cast<double*>(*event) = ends()[stream.id()];
  }
  void block(void* event, const c10::Stream& stream) const override {
    ends()[stream.id()] = std::max(ends()[stream.id()], at(event));
  }
  bool queryEvent(void* event) const override { return at(event) <= now(); }
  void synchronizeEvent(void* event) const override { pass_until(at(event)); }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(queryEvent(first) && queryEvent(second),
                "Both events must be completed before calculating elapsed time.");
    return 1000 * (at(second) - at(first));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }

 private:
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, kScriptedDevice, id);
  }
  static double at(void* event) { return *static_cast<double*>(event); }
  /// When what is on a stream so far ends.
  static std::map<c10::StreamId, double>& ends() {
    static std::map<c10::StreamId, double> all;
    return all;
  }
  static double& now() {
    static double seconds = 0;
    return seconds;
  }
  static c10::StreamId& current() {
    static c10::StreamId id = 0;
    return id;
  }
  static c10::StreamId& last() {
    static c10::StreamId id = 0;
    return id;
  }
};

inline const c10::impl::DeviceGuardImplRegistrar kScriptedStreamsRegistered{
    c10::DeviceType::PrivateUse1, new ScriptedStreams};

}  // namespace brim
