// Every rule of a profile: one file each in this folder, thresholds in doctor/thresholds.h. A rule
// looks at the calls of some measured steps and says which line of the recipe or of the model to
// change, or nothing.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <vector>

#include "framework/doctor/diagnosis.h"
#include "framework/doctor/rule.h"
#include "framework/telemetry/step_profile.h"

namespace brim::doctor {

using telemetry::StepProfile;

struct ProfileRule {
  std::string_view name;  // "tiny_products"
  RuleResult (*check)(const StepProfile&);
};

RuleResult check_alignment(const StepProfile& profile);
RuleResult check_conversions(const StepProfile& profile);
RuleResult check_dense_embedding(const StepProfile& profile);
RuleResult check_fp32_in_autocast(const StepProfile& profile);
RuleResult check_grouped_convolutions(const StepProfile& profile);
RuleResult check_layout_copies(const StepProfile& profile);
RuleResult check_random_numbers(const StepProfile& profile);
RuleResult check_tiny_products(const StepProfile& profile);
RuleResult check_transform_on_cpu(const StepProfile& profile);
RuleResult check_unfused(const StepProfile& profile);
RuleResult check_waiting_operators(const StepProfile& profile);
RuleResult check_wide_loss(const StepProfile& profile);

std::span<const ProfileRule> all_profile_rules();

/// What every rule finds, worst first.
std::vector<NamedFinding> findings_of(const StepProfile& profile);

}  // namespace brim::doctor
