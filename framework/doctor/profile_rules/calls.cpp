#include "framework/doctor/profile_rules/calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace brim::doctor {

CallGroup group_of(const StepProfile& profile,
                   const std::function<bool(const OperatorCalls&)>& belongs) {
  CallGroup group;
  std::map<std::string, double> modules;
  for (const OperatorCalls& calls : profile.operators) {
    if (!belongs(calls)) continue;
    group.seconds += calls.self_s;
    group.calls += calls.calls;
    modules[calls.module] += calls.self_s;
    if (group.longest.name.empty() || calls.self_s > group.longest.self_s) group.longest = calls;
  }
  if (profile.wall_s > 0) group.share = group.seconds / profile.wall_s;
  const auto most =
      std::ranges::max_element(modules, {}, [](const auto& module) { return module.second; });
  group.module = most == modules.end() || most->first.empty() ? "the model" : most->first;
  return group;
}

std::optional<Widths> layer_widths(const OperatorCalls& calls) {
  const auto& inputs = calls.inputs;
  if (calls.flops <= 0 || calls.phase != Phase::kForward) return std::nullopt;
  const auto sizes = [&](size_t index) { return inputs[index].sizes; };
  if (is_named(calls, {"convolution", "conv2d"})) {
    if (inputs.size() < 2 || sizes(0).size() < 3 || sizes(1).size() < 3) return std::nullopt;
    return Widths{sizes(0)[1], sizes(1)[0]};
  }
  if (calls.name == "brim::block_linear") {
    if (inputs.size() < 2 || sizes(1).size() != 2) return std::nullopt;
    return Widths{sizes(1)[1], sizes(1)[0]};
  }
  const size_t right = calls.name == "aten::mm" ? 1 : calls.name == "aten::addmm" ? 2 : 0;
  if (right == 0 || inputs.size() <= right || sizes(right).size() != 2) return std::nullopt;
  return Widths{sizes(right)[0], sizes(right)[1]};
}

bool is_in_pass(const OperatorCalls& calls) {
  return calls.phase == Phase::kForward || calls.phase == Phase::kBackward;
}

bool is_low(std::string_view dtype) { return dtype == "bf16" || dtype == "fp16"; }

bool is_floating(std::string_view dtype) {
  return is_low(dtype) || dtype == "fp32" || dtype == "fp64";
}

bool is_wide_in_autocast(const StepProfile& profile, const OperatorCalls& calls) {
  if (!is_low(profile.precision)) return false;
  const auto is_wide = [](const telemetry::TensorShape& input) {
    return is_floating(input.dtype) && !is_low(input.dtype);
  };
  const auto is_lowered = [](const telemetry::TensorShape& input) { return is_low(input.dtype); };
  return std::ranges::any_of(calls.inputs, is_wide) &&
         std::ranges::none_of(calls.inputs, is_lowered);
}

bool draws_random_numbers(const OperatorCalls& calls) {
  return is_named(calls, {"aten::bernoulli", "aten::uniform_", "aten::normal_", "aten::rand"});
}

bool is_named(const OperatorCalls& calls, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return calls.name.find(word) != std::string::npos; });
}

std::string with_shapes(const OperatorCalls& calls) {
  std::string text = calls.name;
  for (size_t i = 0; i < std::min<size_t>(calls.inputs.size(), 3); ++i) {
    text += fmt::format("{}{}[{}]", i == 0 ? " of " : " ", calls.inputs[i].dtype,
                        fmt::join(calls.inputs[i].sizes, ","));
  }
  return text;
}

}  // namespace brim::doctor
