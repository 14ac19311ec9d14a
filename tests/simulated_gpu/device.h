// The parts of the simulated GPU that LibTorch meets.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace brim::simulated {

/// The one that this process uses, of BRIM_SIMULATED_GPUS, 1 by default.
c10::Device device();
int device_count();
void set_device(int index);

/// A tensor on the CPU that has the same memory. An operator may make it larger.
at::Tensor on_host(const at::Tensor& tensor);

/// Make the device known to LibTorch, and to its profiler.
void register_device();
void register_profiler();

/// The device's own, from which its operators draw.
const at::Generator& generator();

enum class HostWaits { kAllowed, kWarned, kRefused };
/// What happens where the host waits for the device.
HostWaits& host_waits();

}  // namespace brim::simulated
