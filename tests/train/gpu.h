// What tests that train on a GPU have in common.
#pragma once

#include <gtest/gtest.h>

#include "framework/cli/register_all.h"
#include "framework/device/cuda_loader.h"

namespace brim::train {

/// Skips where there is no GPU.
class OnGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {  // of each suite that derives from it
    [[maybe_unused]] static const bool kRegistered = (cli::register_all_components(), true);
  }
  void SetUp() override {
    if (device::cuda().backend == nullptr) GTEST_SKIP() << device::cuda().why_not;
  }
};

}  // namespace brim::train
