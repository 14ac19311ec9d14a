#include "framework/history/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/base/columns.h"
#include "framework/base/units.h"

namespace brim::history {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

constexpr const char* kNone = "–";

std::string or_none(const std::string& text) { return text.empty() ? kNone : text; }

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : kNone;
}

std::string runs_table(std::span<const PastRun> runs) {
  std::vector<Row> rows = {{"run", "started", "user", "host", "model", "steps", "best", "samples/s",
                            "busy", "hours", "kWh", "verdict"}};
  for (const PastRun& run : runs) {
    rows.push_back(
        {run.name, or_none(run.started.substr(0, 16)), or_none(run.user), or_none(run.host),
         or_none(run.model), format_count(run.steps),
         run.metric_name.empty() ? kNone : run.metric_name + " " + format_number(run.metric),
         run.samples_per_s ? format_count(std::llround(*run.samples_per_s)) : kNone,
         run.busy_percent ? fmt::format("{:.0f} %", *run.busy_percent) : kNone,
         format_number(run.hours.total()), run.energy_kwh ? format_number(*run.energy_kwh) : kNone,
         run.findings.empty() ? kNone : run.findings.front().finding.message});
  }
  return in_columns(rows);
}

std::string groups_table(std::span<const PastRun> runs, GroupBy by) {
  Row head = {"group", "runs", "hours", "kWh"};
  for (const auto cause : kCauseNames) head.emplace_back(cause);
  std::vector<Row> rows = {head};
  for (const Group& group : group(runs, by)) {
    const double all = group.hours.total();
    Row row = {group.name, format_count(group.runs), format_number(all),
               group.energy_kwh ? format_number(*group.energy_kwh) : kNone};
    for (const double hours : group.hours.by_cause) row.push_back(percent(hours, all));
    rows.push_back(std::move(row));
  }
  return in_columns(rows);
}

Hours sum(std::span<const PastRun> runs) {
  Hours all;
  for (const PastRun& run : runs) all += run.hours;
  return all;
}

json hours_json(const Hours& hours) {
  json result = json::object();
  for (size_t i = 0; i < kCauseCount; ++i) {
    result[std::string(kCauseNames[i])] = hours.by_cause[i];
  }
  return result;
}

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

json run_json(const PastRun& run) {
  return {{"folder", run.folder.string()},
          {"started", run.started},
          {"user", run.user},
          {"host", run.host},
          {"model", run.model},
          {"device", run.device},
          {"ranks", run.ranks},
          {"steps", run.steps},
          {"metric", run.metric_name.empty() ? json(nullptr) : json(run.metric_name)},
          {"best", run.metric_name.empty() ? json(nullptr) : json(run.metric)},
          {"samples_per_s", or_null(run.samples_per_s)},
          {"busy_percent", or_null(run.busy_percent)},
          {"energy_kwh", or_null(run.energy_kwh)},
          {"hours", hours_json(run.hours)},
          {"verdict", doctor::to_json(run.findings)}};
}

}  // namespace

std::string describe(const Loss& loss) {
  std::string text = fmt::format(
      "{}: {} h ({:.0f} %), most in {} ({} h)", kCauseNames[static_cast<size_t>(loss.cause)],
      format_number(loss.hours), 100 * loss.share, loss.worst_run, format_number(loss.worst_hours));
  if (!loss.change.empty()) text += ": " + loss.change;
  return text;
}

std::string table(std::span<const PastRun> runs, std::optional<GroupBy> by) {
  std::string text = by ? groups_table(runs, *by) : runs_table(runs);
  const Hours all = sum(runs);
  std::vector<std::string> shares;
  for (size_t i = 0; i < kCauseCount; ++i) {
    shares.push_back(fmt::format("{} {}", kCauseNames[i], percent(all.by_cause[i], all.total())));
  }
  text += fmt::format("\n{} of devices in {}: {}\n", format_number(all.total()) + " hours",
                      format_plural(std::ssize(runs), "run"), fmt::join(shares, ", "));
  for (const Loss& loss : largest_losses(runs)) text += "lost to " + describe(loss) + "\n";
  return text;
}

json to_json(std::span<const PastRun> runs, std::optional<GroupBy> by) {
  json result = {{"runs", json::array()}, {"hours", hours_json(sum(runs))}};
  for (const PastRun& run : runs) result["runs"].push_back(run_json(run));
  for (const Loss& loss : largest_losses(runs)) {
    result["losses"].push_back({{"cause", kCauseNames[static_cast<size_t>(loss.cause)]},
                                {"hours", loss.hours},
                                {"share", loss.share},
                                {"run", loss.worst_run},
                                {"run_hours", loss.worst_hours},
                                {"change", loss.change}});
  }
  if (!by) return result;
  for (const Group& group : group(runs, *by)) {
    result["groups"].push_back({{"name", group.name},
                                {"runs", group.runs},
                                {"hours", hours_json(group.hours)},
                                {"energy_kwh", or_null(group.energy_kwh)}});
  }
  return result;
}

}  // namespace brim::history
