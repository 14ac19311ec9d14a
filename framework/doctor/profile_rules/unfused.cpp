// Sequences of LibTorch's operators that Brim has one operator for, where no measurement has found
// LibTorch's to be the faster ones.
#include <algorithm>
#include <array>

#include "framework/doctor/profile_rules/calls.h"
#include "framework/doctor/profile_rules/profile_rules.h"

namespace brim::doctor {
namespace {

struct Sequence {
  std::string_view form;  // as names of measured forms have it
  std::string_view layer;
  std::array<std::string_view, 3> operators;  // parts of names; "": none
};

constexpr std::array<Sequence, 4> kSequences = {{
    {"batch norm", "nn::BatchNorm2d", {"batch_norm", "", ""}},
    {"layer norm", "nn::LayerNorm", {"layer_norm", "", ""}},
    {"GELU", "nn::linear_gelu()", {"aten::gelu", "", ""}},
    {"cross entropy", "nn::fused_cross_entropy()", {"nll_loss", "_log_softmax", ""}},
}};

bool belongs(const OperatorCalls& calls, const Sequence& sequence) {
  if (!is_in_pass(calls) || !calls.name.starts_with("aten::")) return false;
  return std::ranges::any_of(sequence.operators, [&](std::string_view part) {
    return !part.empty() && calls.name.find(part) != std::string::npos;
  });
}

/// Whether LibTorch's form was measured, and is taken because it is the faster one.
bool is_chosen(const StepProfile& profile, const Sequence& sequence) {
  return std::ranges::any_of(profile.forms, [&](const telemetry::FormChoice& form) {
    return !form.is_fused && form.name.find(sequence.form) != std::string::npos;
  });
}

}  // namespace

RuleResult check_unfused(const StepProfile& profile) {
  CallGroup worst;
  const Sequence* of = nullptr;
  for (const Sequence& sequence : kSequences) {
    if (is_chosen(profile, sequence)) continue;
    const CallGroup group =
        group_of(profile, [&](const OperatorCalls& calls) { return belongs(calls, sequence); });
    if (group.share <= worst.share) continue;
    worst = group;
    of = &sequence;
  }
  const auto severity = reached(worst.share, kUnfusedShare);
  if (!severity) return silent();
  return found(
      *severity, worst.share,
      fmt::format("{} and its like take {:.0f} % of the step, most in {}; Brim has a fused "
                  "{}",
                  worst.longest.name, 100 * worst.share, worst.module, of->form),
      profile.fused == "false" ? "precision.fused = \"auto\""
                               : fmt::format("{} in {}", of->layer, worst.module));
}

}  // namespace brim::doctor
