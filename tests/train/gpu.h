// What tests that train on a GPU have in common.
#pragma once

#include "framework/cli/register_all.h"
#include "tests/cuda/gpu.h"

namespace brim::train {

class OnGpu : public cuda::Gpu {
 protected:
  static void SetUpTestSuite() {  // of each suite that derives from it
    [[maybe_unused]] static const bool kRegistered = (cli::register_all_components(), true);
  }
};

}  // namespace brim::train
