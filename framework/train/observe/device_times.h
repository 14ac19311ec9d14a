// How long the kernels of each operator ran on a GPU, from CUPTI by way of Kineto.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace brim::train {

/// Of one call: its name, and its kernels' time without those of the operators that it called.
struct DeviceCall {
  std::string name;
  int64_t kernels_ns = 0;
};
/// By the thread's number (at::RecordFunction::currentThreadId()), in the order in which calls
/// began.
using DeviceCalls = std::map<uint64_t, std::vector<DeviceCall>>;

/// Records this thread's operators and its backward passes' while it lives.
class DeviceTimes {
 public:
  explicit DeviceTimes(c10::Device gpu);
  ~DeviceTimes();
  DeviceTimes(const DeviceTimes&) = delete;
  DeviceTimes& operator=(const DeviceTimes&) = delete;

  /// Ends the recording; once.
  DeviceCalls take();

 private:
  c10::Device device_;
  bool is_recording_ = true;
};

}  // namespace brim::train
