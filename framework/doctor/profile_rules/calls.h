// What rules of a profile ask of operators: which they are, what they multiply, and what share of
// the step they take together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "framework/telemetry/step_profile.h"

namespace brim::doctor {

using telemetry::OperatorCalls;
using telemetry::StepProfile;

/// Calls that have something in common, of a step.
struct CallGroup {
  double share = 0.0;  // of the wall time
  double seconds = 0.0;
  double calls = 0.0;
  std::string module;  // that has most of it; "the model" where none has a name
  OperatorCalls longest = {};
};

CallGroup group_of(const StepProfile& profile,
                   const std::function<bool(const OperatorCalls&)>& belongs);

/// What a layer's product makes of what: features, or channels of a convolution.
struct Widths {
  int64_t in = 0, out = 0;
};

/// Of a product with a weight, forward: of a fully connected layer or a convolution.
std::optional<Widths> layer_widths(const OperatorCalls& calls);

/// Whether it is forward or backward.
bool is_in_pass(const OperatorCalls& calls);
/// Whether the job computes below fp32 and these tensors, as far as they are floating-point, are
/// not.
bool is_wide_in_autocast(const StepProfile& profile, const OperatorCalls& calls);
/// "bf16" or "fp16".
bool is_low(std::string_view dtype);
bool is_floating(std::string_view dtype);
/// bernoulli_() and its like.
bool draws_random_numbers(const OperatorCalls& calls);
/// Whether one of the words is in the operator's name.
bool is_named(const OperatorCalls& calls, std::initializer_list<std::string_view> words);

/// "aten::addmm of bf16[64,256] fp32[256]".
std::string with_shapes(const OperatorCalls& calls);

}  // namespace brim::doctor
