#include "framework/doctor/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/base/units.h"
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

bool is_worse(const NamedFinding& a, const NamedFinding& b) {
  if (a.finding.severity != b.finding.severity) return a.finding.severity > b.finding.severity;
  return a.finding.value > b.finding.value;
}

}  // namespace

void sort_worst_first(std::vector<NamedFinding>& findings) {
  std::ranges::stable_sort(findings, is_worse);
}

std::string describe(const std::vector<NamedFinding>& findings) {
  std::string text;
  for (const NamedFinding& named : findings) {
    text +=
        fmt::format("{:<8} {} [{}]\n         change: {}\n", severity_name(named.finding.severity),
                    named.finding.message, named.rule, named.finding.change);
  }
  return text;
}

nlohmann::json to_json(const std::vector<NamedFinding>& findings) {
  nlohmann::json json = nlohmann::json::array();
  for (const NamedFinding& named : findings) {
    json.push_back({{"rule", named.rule},
                    {"severity", severity_name(named.finding.severity)},
                    {"message", named.finding.message},
                    {"change", named.finding.change}});
  }
  return json;
}

std::string NamedFinding::sentence() const {
  return fmt::format("{}; change: {}", finding.message, finding.change);
}

std::vector<std::string> Diagnosis::verdict(size_t most) const {
  std::vector<std::string> sentences;
  for (const NamedFinding& finding : findings) {
    if (sentences.size() < most) sentences.push_back(finding.sentence());
  }
  return sentences;
}

Diagnosis diagnose(const RunFacts& facts) {
  Diagnosis diagnosis;
  diagnosis.steps = facts.steps;
  diagnosis.seconds = facts.seconds;
  diagnosis.is_too_short =
      facts.steps < kFewestSteps || facts.seconds.value_or(kShortestRunS) < kShortestRunS;
  if (diagnosis.is_too_short) return diagnosis;
  for (const Rule& rule : all_rules()) {
    RuleResult outcome = rule.check(facts);
    const std::string name(rule.name);
    if (!outcome.missing.empty()) diagnosis.unjudged.push_back({name, std::move(outcome.missing)});
    if (outcome.finding) diagnosis.findings.push_back({name, std::move(*outcome.finding)});
  }
  sort_worst_first(diagnosis.findings);
  return diagnosis;
}

std::string describe(const Diagnosis& diagnosis) {
  if (diagnosis.is_too_short) {
    const std::string steps = format_plural(diagnosis.steps, "step");
    if (diagnosis.steps < kFewestSteps)
      return fmt::format("{} so far: too few to judge by\n", steps);
    return fmt::format("{} in {}: too short to judge by, which takes {:.0f} s\n", steps,
                       format_duration(*diagnosis.seconds), kShortestRunS);
  }
  std::string text = describe(diagnosis.findings);
  if (diagnosis.findings.empty()) {
    text = fmt::format("nothing stands out after {}\n", format_plural(diagnosis.steps, "step"));
  }
  std::map<std::string, std::string> rules;  // by what is missing
  for (const Unjudged& unjudged : diagnosis.unjudged) {
    std::string& names = rules[unjudged.missing];
    names += (names.empty() ? "" : ", ") + unjudged.rule;
  }
  for (const auto& [missing, names] : rules) {
    text += fmt::format("not recorded: {} ({})\n", missing, names);
  }
  return text;
}

nlohmann::json to_json(const Diagnosis& diagnosis) {
  nlohmann::json json = {{"steps", diagnosis.steps},
                         {"too_short", diagnosis.is_too_short},
                         {"findings", to_json(diagnosis.findings)},
                         {"not_recorded", nlohmann::json::object()}};
  for (const Unjudged& unjudged : diagnosis.unjudged) {
    json["not_recorded"][unjudged.rule] = unjudged.missing;
  }
  return json;
}

}  // namespace brim::doctor
