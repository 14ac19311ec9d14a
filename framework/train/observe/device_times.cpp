#include "framework/train/observe/device_times.h"

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "framework/base/log.h"
#include "framework/train/observe/kineto.h"

namespace brim::train {

using Activity = libkineto::ActivityType;
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
    switch (static_cast<Activity>(event.activityType())) {
      case Activity::CPU_OP:
        calls.push_back(&event);
        break;
      case Activity::CONCURRENT_KERNEL:
      case Activity::GPU_MEMCPY:
      case Activity::GPU_MEMSET:
        kernels_ns[event.linkedCorrelationId()] += static_cast<int64_t>(event.durationNs());
        break;
      default:  // launches, waits, and what else CUDA does on the host
        break;
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
