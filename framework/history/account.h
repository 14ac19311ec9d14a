// Runs of the past added up: by user, model, host or week, and what their lost hours point to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/history/past_run.h"

namespace brim::history {

enum class GroupBy { kUser, kModel, kHost, kWeek };

/// "user", "model", "host", "week"; nullopt for another word.
std::optional<GroupBy> group_by(std::string_view word);

struct Group {
  std::string name;  // "not recorded" where runs don't say; of a week its Monday, "2026-11-23"
  int64_t runs = 0;
  Hours hours = {};
  std::optional<double> energy_kwh = {};  // of the runs that recorded it
};

/// Most hours first; weeks by time, the newest first. A run's hours are of the week it began in, by
/// UTC.
std::vector<Group> group(std::span<const PastRun> runs, GroupBy by);

/// Hours that were not spent on computing or evaluating, by the cause that took them.
struct Loss {
  Cause cause = Cause::kOther;
  double hours = 0;
  double share = 0;            // of all hours
  std::string worst_run = {};  // the name of the run that lost most by it
  double worst_hours = 0;      // of that run
  std::string change = {};  // what its diagnosis says to change about it; "" where it says nothing
};

/// The three causes that took most, largest first; those that took nothing are left out.
std::vector<Loss> largest_losses(std::span<const PastRun> runs);

/// Seconds of "12h", "7d", "4w". Throws UsageError, naming --since, for another text.
int64_t read_period(const std::string& text);

}  // namespace brim::history
