#include "framework/doctor/proof.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/base/units.h"
#include "framework/doctor/diagnosis.h"

namespace brim::doctor {
namespace {

constexpr double kGapOfNoise = 0.03;  // two measurements of one speed differ by as much
constexpr double kGapOfData = 0.25;   // more beyond the record is hardly data's alone

}  // namespace

std::optional<double> Proof::gap() const {
  if (!got_per_s || ceiling_per_s <= 0 || !otherness.empty()) return std::nullopt;
  return 1 - *got_per_s / ceiling_per_s;
}

std::string Proof::sentence() const {
  const std::string text = comparison();
  if (!is_too_short || !gap()) return text;
  return text + "; the run is too short to compare by, its start weighs on it";
}

std::string Proof::comparison() const {
  const auto count = [](double metric) { return format_count(std::llround(metric)); };
  std::string text =
      fmt::format("the same steps make {} samples/s on preloaded samples", count(ceiling_per_s));
  if (ranks > 1) text += fmt::format(" on {} ranks that never wait for each other", ranks);
  if (!got_per_s) return text + "; the run has recorded no speed to compare with";
  text += fmt::format(", the run got {}", count(*got_per_s));
  const auto lost = gap();
  if (!lost) {
    return fmt::format("{}; that can't be compared: {}", text, fmt::join(otherness, ", "));
  }
  const bool is_data_alone = *lost - recorded_share <= kGapOfData;
  const char* who = ranks > 1       ? "data and the other ranks cost"
                    : is_data_alone ? "data costs"
                                    : "data, or what else ran beside the steps, costs";
  if (*lost > kGapOfNoise) {
    return fmt::format("{} you {:.0f} %: {} (by its own record data cost it {:.0f} %)", who,
                       100 * *lost, text, 100 * recorded_share);
  }
  if (*lost < -kGapOfNoise) {
    return fmt::format(
        "the run was faster than its ceiling is now: {}; look for what else uses "
        "this machine",
        text);
  }
  return fmt::format("{} you next to nothing: {}", who, text);
}

Proof prove(const RunFacts& facts, double ceiling_per_s, int64_t steps) {
  Proof proof;
  proof.ranks = facts.ranks.value_or(1);
  proof.ceiling_per_s = ceiling_per_s * static_cast<double>(proof.ranks);
  proof.got_per_s = facts.given_per_s;
  // The ceiling is one of training alone.
  const double training = std::max(1e-9, facts.training_share());
  proof.waited_share = facts.share(Phase::kDataWait) / training;
  proof.recorded_share = facts.data_share() / training;
  proof.steps = steps;
  proof.is_too_short = diagnose(facts).is_too_short;
  return proof;
}

nlohmann::json to_json(const Proof& proof) {
  const auto or_null = [](const std::optional<double>& metric) {
    return metric ? nlohmann::json(*metric) : nlohmann::json(nullptr);
  };
  return {{"ceiling_per_s", proof.ceiling_per_s},
          {"run_per_s", or_null(proof.got_per_s)},
          {"gap", or_null(proof.gap())},
          {"waited_for_data", proof.waited_share},
          {"recorded", proof.recorded_share},
          {"ranks", proof.ranks},
          {"steps", proof.steps},
          {"too_short", proof.is_too_short},
          {"message", proof.sentence()}};
}

}  // namespace brim::doctor
