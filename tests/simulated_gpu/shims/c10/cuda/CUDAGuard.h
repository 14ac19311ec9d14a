// In place of LibTorch's header, as there is one device.
#pragma once

#include <c10/core/Device.h>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(c10::Device) {}
  ~CUDAGuard() {}  // it is more than unused
};

}  // namespace c10::cuda
