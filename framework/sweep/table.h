// A sweep's trials for people and for programs: one line, a table, JSON and CSV.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {

/// The places of the trials: the best first, those without a result behind, by their ids.
std::vector<size_t> ranking(const Plan& plan, std::span<const Trial> trials);

/// "12 of 200 trials done, 2 running, 1 failed; best top1 97.22 (trial 7)".
std::string summary(const Plan& plan, std::span<const Trial> trials);

/// In the order of ranking(); ends with summary().
std::string table(const Plan& plan, std::span<const Trial> trials);

/// In the order of their ids.
nlohmann::json to_json(const Plan& plan, std::span<const Trial> trials);
/// The same with a column for each key (RFC 4180).
std::string csv(const Plan& plan, std::span<const Trial> trials);

/// The key and the value of the setting "key=value".
std::string key_of(const std::string& setting);
std::string value_of(const std::string& setting);
/// "optimizer.learning_rate" of each key that some trial sets, in the order of their settings.
std::vector<std::string> keys_of(std::span<const Trial> trials);
/// What the trial sets the key to; "" where it doesn't.
std::string value_at(const Trial& trial, const std::string& key);
/// nullopt for what is no finite number.
std::optional<double> number_in(const std::string& word);

}  // namespace brim::sweep
