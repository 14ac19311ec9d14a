#include "framework/doctor/profile_rules/profile_rules.h"

#include <algorithm>
#include <array>
#include <utility>

namespace brim::doctor {

std::span<const ProfileRule> all_profile_rules() {
  static constexpr std::array<ProfileRule, 12> kRules = {{
      {"alignment", check_alignment},
      {"tiny_products", check_tiny_products},
      {"fp32_in_autocast", check_fp32_in_autocast},
      {"dtype_conversions", check_conversions},
      {"layout_copies", check_layout_copies},
      {"waiting_operators", check_waiting_operators},
      {"unfused", check_unfused},
      {"grouped_convolutions", check_grouped_convolutions},
      {"dense_embedding_gradients", check_dense_embedding},
      {"wide_loss", check_wide_loss},
      {"random_numbers", check_random_numbers},
      {"transform_on_cpu", check_transform_on_cpu},
  }};
  return kRules;
}

std::vector<NamedFinding> findings_of(const StepProfile& profile) {
  std::vector<NamedFinding> findings;
  for (const ProfileRule& rule : all_profile_rules()) {
    RuleResult outcome = rule.check(profile);
    if (outcome.finding) findings.push_back({std::string(rule.name), std::move(*outcome.finding)});
  }
  sort_worst_first(findings);
  return findings;
}

}  // namespace brim::doctor
