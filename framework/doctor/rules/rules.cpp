#include "framework/doctor/rules/rules.h"

#include <array>

namespace brim::doctor {

std::string_view severity_name(Severity severity) {
  constexpr std::array<std::string_view, 3> kNames = {"hint", "warning", "severe"};
  return kNames[static_cast<size_t>(severity)];
}

std::optional<Severity> reached(double value, const Levels& rising) {
  if (value >= rising.severe) return Severity::kSevere;
  if (value >= rising.warning) return Severity::kWarning;
  if (value >= rising.hint) return Severity::kHint;
  return std::nullopt;
}

std::optional<Severity> fallen_to(double value, const Levels& falling) {
  return reached(-value, {-falling.hint, -falling.warning, -falling.severe});
}

std::span<const Rule> all_rules() {
  static constexpr std::array<Rule, 17> kRules = {{
      {"loader_bound", check_loader},
      {"slow_disk", check_slow_disk},
      {"communication_exposed", check_communication},
      {"straggler", check_straggler},
      {"uneven_shards", check_uneven_shards},
      {"precision", check_precision},
      {"layout", check_layout},
      {"launch_bound", check_launch_bound},
      {"small_batch", check_small_batch},
      {"bookkeeping", check_bookkeeping},
      {"host_syncs", check_host_syncs},
      {"swinging_utilisation", check_swing},
      {"memory_full_but_idle", check_full_memory},
      {"memory_mostly_empty", check_empty_memory},
      {"throttling", check_throttling},
      {"swap", check_swap},
      {"cpu_oversubscribed", check_oversubscription},
  }};
  return kRules;
}

}  // namespace brim::doctor
