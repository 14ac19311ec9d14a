// A rule looks at a run's facts and says what is wrong and which line of the recipe to change, or
// nothing, or that the run did not record what it would need.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/doctor/facts.h"
#include "framework/doctor/thresholds.h"

namespace brim::doctor {

enum class Severity { kHint, kWarning, kSevere };
std::string_view severity_name(Severity severity);

/// "data.workers=4", as --set takes it; those that belong together.
using Settings = std::vector<std::string>;

struct Finding {
  Severity severity;
  double value;         // how bad among those of one severity: a share of the time, or like one
  std::string message;  // what is wrong, with its numbers
  std::string change;   // what to write into the recipe, or to do where no line helps
  /// What --fix tries, most promising first; empty where no line of the recipe helps.
  std::vector<Settings> proposals = {};
};

/// Silent, a finding, or what is not recorded.
struct RuleResult {
  std::optional<Finding> finding = {};
  std::string missing = {};  // "per-rank times"; "" where the rule could judge
};

struct Rule {
  std::string_view name;  // "loader_bound"
  RuleResult (*check)(const RunFacts&);
};

inline RuleResult silent() { return {}; }
inline RuleResult not_recorded(std::string what) {
  return {.finding = {}, .missing = std::move(what)};
}
inline RuleResult found(Severity severity, double value, std::string message, std::string change,
                        std::vector<Settings> proposals = {}) {
  return {.finding =
              Finding{severity, value, std::move(message), std::move(change), std::move(proposals)},
          .missing = {}};
}

/// How far a value has gone; nullopt before `hint`.
std::optional<Severity> reached(double value, const Levels& rising);
std::optional<Severity> fallen_to(double value, const Levels& falling);

}  // namespace brim::doctor
