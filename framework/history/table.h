// Runs of the past for people and for programs: tables, JSON, and one HTML page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "framework/history/account.h"

namespace brim::history {

/// A line a run, or a group where `by` says so; then the shares of the causes and the largest
/// losses.
std::string table(std::span<const PastRun> runs, std::optional<GroupBy> by);

/// {"runs": […], "groups": […] where `by` says so, "hours": {cause: hours}, "losses": […]}.
nlohmann::json to_json(std::span<const PastRun> runs, std::optional<GroupBy> by);

/// "Where the device hours went": by week, user, model and host, what would give most back, and the
/// runs. Needs no network.
std::string make_page(std::span<const PastRun> runs, const std::string& title,
                      const std::string& made_at);

/// "data: 1.9 h (15 %), most in a/b (1.1 h): data.workers = 8".
std::string describe(const Loss& loss);

}  // namespace brim::history
