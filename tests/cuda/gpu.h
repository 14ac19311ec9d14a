// Tests that need a GPU: they skip, saying why, where there is none.
#pragma once

#include <gtest/gtest.h>

#include "framework/device/cuda_loader.h"

namespace brim::cuda {

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda().backend == nullptr) GTEST_SKIP() << device::cuda().why_not;
  }

  const device::CudaBackend& backend() const { return *device::cuda().backend; }
};

}  // namespace brim::cuda
