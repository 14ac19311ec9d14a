#include "framework/history/account.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <map>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace brim::history {
namespace {

constexpr std::array kGroups = {std::pair{std::string_view("user"), GroupBy::kUser},
                                std::pair{std::string_view("model"), GroupBy::kModel},
                                std::pair{std::string_view("host"), GroupBy::kHost},
                                std::pair{std::string_view("week"), GroupBy::kWeek}};
constexpr std::array kLost = {Cause::kData, Cause::kCommunication, Cause::kCheckpoint,
                              Cause::kOther, Cause::kIdle};
constexpr size_t kShownLosses = 3;
constexpr int64_t kDayS = 24 * 3600;
constexpr int64_t kWeekS = 7 * kDayS;

/// The Monday of its week, by UTC.
std::string week_of(int64_t unix_s) {
  constexpr int64_t kFirstMonday = 4;  // of January 1970, in days from its first
  const int64_t begin_s = kFirstMonday * kDayS;
  const int64_t since_monday_s = ((unix_s - begin_s) % kWeekS + kWeekS) % kWeekS;
  const std::time_t monday = unix_s - since_monday_s;
  std::tm parts{};
  ::gmtime_r(&monday, &parts);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

std::string key_of(const PastRun& run, GroupBy by) {
  switch (by) {
    case GroupBy::kUser:
      return run.user;
    case GroupBy::kModel:
      return run.model;
    case GroupBy::kHost:
      return run.host;
    case GroupBy::kWeek:
      break;
  }
  return run.started_unix_s == 0 ? "" : week_of(run.started_unix_s);
}

/// The rules that speak of a cause.
bool speaks_of(std::string_view rule, Cause cause) {
  switch (cause) {
    case Cause::kData:
      return rule == "loader_bound" || rule == "slow_disk";
    case Cause::kCommunication:
      return rule == "straggler" || rule == "uneven_shards" || rule == "communication_exposed";
    case Cause::kOther:
      return rule == "bookkeeping" || rule == "host_syncs";
    default:
      return false;
  }
}

}  // namespace

std::optional<GroupBy> group_by(std::string_view word) {
  for (const auto& [name, by] : kGroups) {
    if (name == word) return by;
  }
  return std::nullopt;
}

std::vector<Group> group(std::span<const PastRun> runs, GroupBy by) {
  std::map<std::string, Group> found;
  for (const PastRun& run : runs) {
    const std::string key = key_of(run, by);
    Group& group = found[key];
    group.name = key.empty() ? "not recorded" : key;
    ++group.runs;
    group.hours += run.hours;
    if (run.energy_kwh) group.energy_kwh = group.energy_kwh.value_or(0) + *run.energy_kwh;
  }
  std::vector<Group> groups;
  for (auto& [key, group] : found) groups.push_back(std::move(group));
  if (by == GroupBy::kWeek) {
    std::ranges::reverse(groups);
  } else {
    std::ranges::stable_sort(groups, std::greater<>{},
                             [](const Group& group) { return group.hours.total(); });
  }
  return groups;
}

std::vector<Loss> largest_losses(std::span<const PastRun> runs) {
  double all = 0;
  for (const PastRun& run : runs) all += run.hours.total();
  std::vector<Loss> losses;
  for (const Cause cause : kLost) {
    Loss loss{.cause = cause};
    for (const PastRun& run : runs) {
      const double hours = run.hours.of(cause);
      loss.hours += hours;
      if (hours <= loss.worst_hours) continue;
      loss.worst_hours = hours;
      loss.worst_run = run.name;
      const auto finding = std::ranges::find_if(
          run.findings, [&](const auto& named) { return speaks_of(named.rule, cause); });
      loss.change = finding == run.findings.end() ? "" : finding->finding.change;
    }
    if (loss.hours <= 0) continue;
    loss.share = loss.hours / all;
    losses.push_back(std::move(loss));
  }
  std::ranges::stable_sort(losses, std::greater<>{}, &Loss::hours);
  if (losses.size() > kShownLosses) losses.resize(kShownLosses);
  return losses;
}

int64_t read_period(const std::string& text) {
  constexpr int64_t kMaxCount = 100'000;
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  const bool is_one_letter = error == std::errc() && end - rest == 1;
  if (is_one_letter && count > 0 && count <= kMaxCount) {
    if (*rest == 'h') return count * 3600;
    if (*rest == 'd') return count * kDayS;
    if (*rest == 'w') return count * kWeekS;
  }
  throw UsageError(
      "--since: expected 1 to {} hours, days or weeks, as in 12h, 7d or 4w, found '{}'",
      format_count(kMaxCount), text);
}

}  // namespace brim::history
