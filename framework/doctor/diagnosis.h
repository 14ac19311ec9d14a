// What is wrong with a run, worst first, and what could not be judged.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/doctor/rule.h"

namespace brim::doctor {

struct NamedFinding {
  std::string rule;
  Finding finding;

  /// "the device waits for data 40 % of the time: …; change: data.workers = 8".
  std::string sentence() const;
};

/// By severity, then by value.
void sort_worst_first(std::vector<NamedFinding>& findings);
/// Two lines for each.
std::string describe(const std::vector<NamedFinding>& findings);
/// [{"rule", "severity", "message", "change"}].
nlohmann::json to_json(const std::vector<NamedFinding>& findings);

struct Unjudged {
  std::string rule;
  std::string missing;
};

struct Diagnosis {
  int64_t steps = 0;
  std::optional<double> seconds;  // of those steps; nullopt: not recorded
  bool is_too_short = false;      // a warm-up; no rule was asked
  std::vector<NamedFinding> findings;
  std::vector<Unjudged> unjudged;

  /// The worst `most` findings, a sentence each.
  std::vector<std::string> verdict(size_t most) const;
};

/// Asks every rule.
Diagnosis diagnose(const RunFacts& facts);

/// Lines for people.
std::string describe(const Diagnosis& diagnosis);
/// {"steps", "too_short", "findings": [{"rule", "severity", "message", "change"}], "not_recorded":
/// {rule: what}}.
nlohmann::json to_json(const Diagnosis& diagnosis);

}  // namespace brim::doctor
