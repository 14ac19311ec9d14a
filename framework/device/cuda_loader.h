// The door to the CUDA half: libbrim_cuda.so is loaded once, and only where a driver is, so that a
// machine without one pays nothing for it.
#pragma once

#include <string>

#include "framework/device/cuda_backend.h"

namespace brim::device {

struct CudaLoad {
  const CudaBackend* backend = nullptr;  // null: there is no CUDA here
  std::string why_not;                   // then why, for people
};

/// Loads on the first call; thread-safe.
const CudaLoad& cuda();

}  // namespace brim::device
