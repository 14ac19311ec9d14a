// doctor RUN --fix: tries what the diagnosis proposes in short runs, and keeps what is faster.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/doctor/diagnosis.h"
#include "framework/experiment/bench/comparison.h"

namespace brim::doctor {

/// The most proposals that are tried.
inline constexpr size_t kMaxProposals = 3;

struct Proposal {
  std::string rule;
  Settings settings;
};

/// Of each finding its first proposal, in the order of the findings, then the second ones and so
/// on, without repetition; kMaxProposals of them.
std::vector<Proposal> proposals_of(const Diagnosis& diagnosis);

struct FixPlan {
  std::vector<std::string> arguments;  // of trainer: the recipe, and whether its code is trusted
  int64_t repeats = 5;
  std::optional<int64_t> steps = {};  // measured in each run; nullopt: about three seconds' worth
  /// Steps and seconds of an epoch: a cache pays from the second one on.
  int64_t epoch_steps = 0;
  double epoch_s = 0.0;
};

struct Attempt {
  Proposal proposal;
  std::optional<experiment::Ratio> ratio =
      {};                    // of speeds, to the recipe with what was kept before
  std::string failure = {};  // why there is no ratio
  bool is_kept = false;
};

struct Fix {
  std::vector<Attempt> attempts = {};
  Settings kept = {};
  std::optional<experiment::Ratio> gain = {};  // of all that was kept, to the recipe

  /// A line for each attempt, then the gain with the sections to write into the recipe.
  std::string describe() const;
};

/// Measures each proposal against the recipe with what was kept before it, in turn, and keeps those
/// whose interval lies above 1. More than one are measured together once more. A proposal whose run
/// fails is left out. Throws the error of a run of the recipe itself, and Error(kStopped).
Fix fix(const std::vector<Proposal>& proposals, const FixPlan& plan);

nlohmann::json to_json(const Fix& fix);

}  // namespace brim::doctor
