// LibTorch's profiler, Kineto, started and ended: for traces (profiler.h) and for the times of
// kernels on a GPU (device_times.h).
#pragma once

#include <c10/core/Device.h>

#include <memory>

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace brim::train {

/// From now on this thread's operators and the kernels that they launch on `device` are recorded;
/// with `is_trace`, also ranges of users, shapes and memory. Once in a process at a time.
void start_kineto(c10::Device device, bool is_trace);

/// What was recorded until now; waits for the device.
std::unique_ptr<torch::autograd::profiler::ProfilerResult> end_kineto(c10::Device device);

}  // namespace brim::train
