// A rule looks at a run's facts and says what is wrong and which line of the recipe to change, or
// nothing, or that the run did not record what it would need.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "framework/doctor/facts.h"
#include "framework/doctor/thresholds.h"

namespace brim::doctor {

enum class Severity { kHint, kWarning, kSevere };
std::string_view severity_name(Severity severity);

struct Finding {
  Severity severity;
  double figure;        // how bad among those of one severity: a share of the time, or like one
  std::string message;  // what is wrong, with its figures
  std::string change;   // what to write into the recipe, or to do where no line helps
};

/// Silent, a finding, or what is not recorded.
struct Outcome {
  std::optional<Finding> finding = {};
  std::string missing = {};  // "per-rank times"; "" where the rule could judge
};

struct Rule {
  std::string_view name;  // "loader_bound"
  Outcome (*check)(const RunFacts&);
};

inline Outcome silent() { return {}; }
inline Outcome not_recorded(std::string what) {
  return {.finding = {}, .missing = std::move(what)};
}
inline Outcome found(Severity severity, double figure, std::string message, std::string change) {
  return {.finding = Finding{severity, figure, std::move(message), std::move(change)},
          .missing = {}};
}

/// How far a figure has gone; nullopt before `hint`.
std::optional<Severity> reached(double figure, const Levels& rising);
std::optional<Severity> fallen_to(double figure, const Levels& falling);

}  // namespace brim::doctor
