// Does this machine train as it should: ten steps of a tiny network on each device, against the
// same steps in float64 on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "framework/amp/autocast.h"
#include "framework/device/memory/memory.h"
#include "framework/doctor/environment/environment.h"

namespace brim::doctor {

/// What ten steps of the tiny network came to. Weights are float64 on the CPU, all in one piece.
struct Trained {
  at::Tensor start;    // weights before the first step
  at::Tensor weights;  // after the last one
  double loss = 0;     // then, over evaluation data
};

/// Another seed makes another network. Throws what training throws.
Trained train_tiny(c10::Device device, device::Memory& memory, amp::PrecisionMode precision,
                   int64_t seed = 1);

/// How far `own` is from `reference`, as a share of what the reference has learned.
environment::CheckResult judge(const Trained& reference, const Trained& own);

/// Trains in fp32 on `device` and judges. A device on which training throws has failed; one whose
/// memory is taken by others is a warning.
environment::CheckResult test_device(c10::Device device, device::Memory& memory,
                                     const Trained& reference);

/// "self-test cpu", "self-test cuda:0", …: of each device that CUDA_VISIBLE_DEVICES leaves. Takes
/// about a second, and longer for a GPU's start.
std::vector<environment::Result> self_test();

}  // namespace brim::doctor
