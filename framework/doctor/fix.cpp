#include "framework/doctor/fix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/experiment/bench/bench.h"

namespace brim::doctor {
namespace {

using experiment::Ratio;

constexpr double kLongestEpochS = 60;  // that a run may warm up for

bool fills_cache(const Settings& settings) {
  return std::ranges::any_of(settings,
                             [](const std::string& set) { return set.starts_with("data.cache="); });
}

experiment::VariantPlan variant_of(std::string name, const FixPlan& plan,
                                   const Settings& settings) {
  experiment::VariantPlan variant{.name = std::move(name),
                                  .arguments = plan.arguments,
                                  .steps = plan.steps,
                                  .warmup = fills_cache(settings) ? plan.epoch_steps : 0};
  for (const std::string& set : settings) {
    variant.arguments.insert(variant.arguments.end(), {"--set", set});
  }
  return variant;
}

Settings joined(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

/// How many times as fast the recipe is with `after` as with `before`.
Ratio measure(const FixPlan& plan, const Settings& before, const Settings& after,
              const std::string& name) {
  experiment::BenchPlan bench{
      .variants = {variant_of("recipe", plan, before), variant_of(name, plan, after)},
      .repeats = plan.repeats,
      .keeps_telemetry = true};
  const experiment::BenchResult result = experiment::run_bench(bench);
  std::vector<double> speeds[2];
  for (size_t side : {0, 1}) {
    for (const auto& run : result.variants[side].runs) speeds[side].push_back(run.samples_per_s);
  }
  return experiment::ratio_of(speeds[1], speeds[0]);
}

std::string text_of(const Ratio& ratio) {
  return fmt::format("{:.2f}× ({:.2f} to {:.2f})", ratio.value, ratio.interval.low,
                     ratio.interval.high);
}

bool is_undecided(const Attempt& attempt) {
  return attempt.ratio && attempt.ratio->interval.confidence < experiment::kConfidence;
}

std::string outcome_of(const Attempt& attempt) {
  if (!attempt.ratio) return "not measured: " + attempt.failure;
  return fmt::format("{}, {}", text_of(*attempt.ratio),
                     attempt.is_kept         ? "kept"
                     : is_undecided(attempt) ? "too few runs to say: --repeats 4 or more"
                                             : "no gain");
}

nlohmann::json to_json(const std::optional<Ratio>& ratio) {
  if (!ratio) return nullptr;
  return {{"ratio", ratio->value},
          {"low", ratio->interval.low},
          {"high", ratio->interval.high},
          {"confidence", ratio->interval.confidence}};
}

/// The settings by section, as lines of TOML.
std::string sections_of(const Settings& settings) {
  std::map<std::string, std::string> sections;
  for (const std::string& set : settings) {
    const size_t sign = set.find('=');
    const size_t dot = set.rfind('.', sign);
    const std::string value = set.substr(sign + 1);
    const bool is_bare = value == "true" || value == "false" ||
                         value.find_first_not_of("0123456789") == std::string::npos;
    sections[set.substr(0, dot)] += fmt::format("{} = {}\n", set.substr(dot + 1, sign - dot - 1),
                                                is_bare ? value : "\"" + value + "\"");
  }
  std::string text;
  for (const auto& [section, lines] : sections) text += fmt::format("[{}]\n{}", section, lines);
  return text;
}

}  // namespace

std::vector<Proposal> proposals_of(const Diagnosis& diagnosis) {
  size_t rounds = 0;
  for (const NamedFinding& named : diagnosis.findings) {
    rounds = std::max(rounds, named.finding.proposals.size());
  }
  std::vector<Proposal> proposals;
  for (size_t round = 0; round < rounds; ++round) {
    for (const auto& [rule, finding] : diagnosis.findings) {
      if (round >= finding.proposals.size() || proposals.size() >= kMaxProposals) continue;
      const Settings& settings = finding.proposals[round];
      if (std::ranges::find(proposals, settings, &Proposal::settings) == proposals.end()) {
        proposals.push_back({rule, settings});
      }
    }
  }
  return proposals;
}

Fix fix(const std::vector<Proposal>& proposals, const FixPlan& plan) {
  Fix fix;
  for (const Proposal& proposal : proposals) {
    Attempt attempt{.proposal = proposal};
    const std::string name = fmt::format("{}", fmt::join(proposal.settings, ", "));
    if (fills_cache(proposal.settings) && plan.epoch_s > kLongestEpochS) {
      attempt.failure = fmt::format("a cache pays from the second epoch on, and one takes {}",
                                    format_duration(plan.epoch_s));
      fix.attempts.push_back(std::move(attempt));
      continue;
    }
    log::info("trying {}", name);
    try {
      attempt.ratio = measure(plan, fix.kept, joined(fix.kept, proposal.settings), name);
      attempt.is_kept =
          experiment::judge(*attempt.ratio, /*margin=*/0) == experiment::Verdict::kFaster;
    } catch (const Error& error) {
      const std::string what = error.what();
      if (error.status() == Exit::kStopped || !what.starts_with(name)) throw;
      attempt.failure = what.substr(std::min(what.size(), name.size() + 2));
    }
    if (attempt.is_kept) {
      fix.kept = joined(fix.kept, proposal.settings);
      fix.gain = attempt.ratio;
    }
    fix.attempts.push_back(std::move(attempt));
  }
  if (std::ranges::count(fix.attempts, true, &Attempt::is_kept) > 1) {
    log::info("measuring all that was kept together");
    fix.gain = measure(plan, {}, fix.kept, "with all that was kept");
  }
  return fix;
}

std::string Fix::describe() const {
  std::string text;
  for (const Attempt& attempt : attempts) {
    text += fmt::format("tried    {}: {}\n", fmt::join(attempt.proposal.settings, ", "),
                        outcome_of(attempt));
  }
  if (attempts.empty()) return "fix      no line of the recipe to try\n";
  if (!gain) {
    const bool is_open = std::ranges::any_of(attempts, is_undecided);
    return text + (is_open ? "fix      nothing kept: too few runs\n" : "fix      no gain\n");
  }
  return text + fmt::format("fix      {} as fast as the recipe, with\n{}", text_of(*gain),
                            sections_of(kept));
}

nlohmann::json to_json(const Fix& fix) {
  nlohmann::json attempts = nlohmann::json::array();
  for (const Attempt& attempt : fix.attempts) {
    attempts.push_back({{"rule", attempt.proposal.rule},
                        {"settings", attempt.proposal.settings},
                        {"speed", to_json(attempt.ratio)},
                        {"kept", attempt.is_kept}});
    if (!attempt.failure.empty()) attempts.back()["failure"] = attempt.failure;
  }
  return {{"attempts", std::move(attempts)}, {"kept", fix.kept}, {"gain", to_json(fix.gain)}};
}

}  // namespace brim::doctor
