#include "framework/train/observe/device_times.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "framework/base/log.h"
#include "framework/train/observe/kineto.h"

namespace brim::train {

using torch::autograd::profiler::KinetoEvent;

DeviceTimes::DeviceTimes(c10::Device gpu) : device_(gpu) { start_kineto(gpu, /*is_trace=*/false); }

DeviceTimes::~DeviceTimes() {
  if (!is_recording_) return;
  try {
    end_kineto(device_);  // the steps failed
  } catch (const std::exception& error) {
    log::warning("the profile could not be ended: {}", error.what());
  }
}

DeviceCalls DeviceTimes::take() {
  is_recording_ = false;
  const auto result = end_kineto(device_);
  std::vector<const KinetoEvent*> calls;
  std::unordered_map<uint64_t, int64_t> kernels_ns;  // by the call that launched them
  for (const KinetoEvent& event : result->events()) {
    if (event.deviceType() == c10::DeviceType::CPU) {
      // What is no operator, such as a launch, has no number of its own that kernels refer to.
      if (event.startThreadId() != 0 && event.correlationId() != 0) calls.push_back(&event);
    } else if (event.linkedCorrelationId() != 0) {
      kernels_ns[event.linkedCorrelationId()] += static_cast<int64_t>(event.durationNs());
    }
  }
  std::ranges::stable_sort(calls, std::less<>{}, [](const KinetoEvent* call) {
    return std::pair(call->startNs(), call->correlationId());
  });
  DeviceCalls by_thread;
  for (const KinetoEvent* call : calls) {
    const auto found = kernels_ns.find(call->correlationId());
    by_thread[call->startThreadId()].push_back(
        {call->name(), found == kernels_ns.end() ? 0 : found->second});
  }
  return by_thread;
}

}  // namespace brim::train
