#include "framework/history/past_run.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/timestamp.h"
#include "framework/experiment/run_data.h"

namespace brim::history {
namespace fs = std::filesystem;
namespace {

using experiment::RunData;
using experiment::Series;

constexpr double kHourS = 3600;
// What no run reaches: metrics beyond are damage.
constexpr int64_t kMaxRanks = 1'000'000;
constexpr auto kMaxHours = static_cast<int64_t>(experiment::kMaxRunS / kHourS);
constexpr double kMaxPowerW = 100'000;  // of a GPU
constexpr int kDeepest = 16;            // of folders below the one that is searched

Cause cause_of(Phase phase) {
  switch (phase) {
    case Phase::kDataWait:
    case Phase::kCopy:
      return Cause::kData;
    case Phase::kForward:
    case Phase::kBackward:
    case Phase::kOptimizer:
    case Phase::kTransform:
      return Cause::kCompute;
    case Phase::kCommunication:
      return Cause::kCommunication;
    case Phase::kCheckpoint:
      return Cause::kCheckpoint;
    case Phase::kEvaluation:
      return Cause::kEvaluation;
    case Phase::kOther:
      break;
  }
  return Cause::kOther;
}

double mean_of(const RunData& run, std::string_view metric) {
  const Series* series = run.metric(metric);
  return series == nullptr ? 0 : series->mean();
}

/// How long the run's processes have run: as far as lines say, of one that was killed.
double held_s(const RunData& run) {
  return std::max(run.ended_s, run.age_s.empty() ? 0.0 : run.age_s.last());
}

/// The run's age when the part that begins after that step began.
double start_of(const RunData& run, int64_t after_step) {
  double age_s = 0;
  for (const experiment::Restart& restart : run.restarts) {
    if (restart.step <= after_step) age_s = restart.age_s;
  }
  return age_s;
}

/// How many devices the run held, the mean over the time of its parts.
double mean_ranks(const RunData& run) {
  std::vector<const nlohmann::json*> parts;
  const auto earlier = run.record.find("earlier");
  if (earlier != run.record.end() && earlier->is_array()) {
    for (const nlohmann::json& part : *earlier) parts.push_back(&part);
  }
  parts.push_back(&run.record);
  double sum = 0, begin_s = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t ranks = integer_at(*parts[i], "ranks").value_or(1);
    if (ranks < 1 || ranks > kMaxRanks) {
      throw Error(Exit::kData, "{}: run.json: expected 1 to {} ranks, found {}",
                  run.folder.string(), kMaxRanks, ranks);
    }
    const bool is_last = i + 1 == parts.size();
    const double end_s =
        is_last ? held_s(run) : start_of(run, integer_at(*parts[i + 1], "after_step").value_or(0));
    sum += static_cast<double>(ranks) * std::max(0.0, end_s - begin_s);
    begin_s = std::max(begin_s, end_s);
    if (is_last && begin_s <= 0) return static_cast<double>(ranks);
  }
  return sum / begin_s;
}

/// Each line of metrics stands for about as many steps.
Hours hours_of(const RunData& run, const doctor::RunFacts& facts) {
  Hours hours;
  const double device_hours = mean_ranks(run) / kHourS;
  const double steps = static_cast<double>(run.steps()) * device_hours;
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    const auto name = phase_name(static_cast<Phase>(phase));
    hours.by_cause[static_cast<size_t>(cause_of(static_cast<Phase>(phase)))] +=
        std::max(0.0, mean_of(run, "phases_s/" + std::string(name)) * steps);
  }
  const double decoding = std::min(facts.decode_share * hours.total(), hours.of(Cause::kCompute));
  hours.by_cause[static_cast<size_t>(Cause::kCompute)] -= decoding;
  hours.by_cause[static_cast<size_t>(Cause::kData)] += decoding;
  hours.by_cause[static_cast<size_t>(Cause::kIdle)] =
      std::max(0.0, held_s(run) * device_hours - hours.total());
  if (!(hours.total() <= kMaxHours)) {
    throw Error(Exit::kData, "{}: metrics.jsonl: expected times of at most {} hours, found {:.3g}",
                run.folder.string(), kMaxHours, hours.total());
  }
  return hours;
}

std::string shown_text_at(const nlohmann::json& record, const char* key) {
  return printable(text_at(record, key));
}

}  // namespace

double Hours::total() const { return std::accumulate(by_cause.begin(), by_cause.end(), 0.0); }

Hours& Hours::operator+=(const Hours& other) {
  for (size_t i = 0; i < kCauseCount; ++i) by_cause[i] += other.by_cause[i];
  return *this;
}

PastRun past_run_of(const RunData& run, std::string name) {
  const doctor::RunFacts facts = doctor::facts_of(run);
  const nlohmann::json& machine = run.record.value("machine", nlohmann::json());
  PastRun past{.folder = run.folder,
               .name = std::move(name),
               .started = shown_text_at(run.first_part(), "started"),
               .user = shown_text_at(run.record, "user"),
               .host = shown_text_at(machine, "host"),
               .model = printable(facts.model),
               .device = shown_text_at(run.record, "device"),
               .ranks = std::max<int64_t>(1, facts.ranks.value_or(1)),
               .steps = run.last_step()};
  past.started_unix_s = unix_time_s(past.started);
  if (const auto best = run.best_evaluation()) {
    past.metric_name = best->metric;
    past.metric = best->value;
  }
  if (const Series* speed = run.metric("samples_per_s")) {
    past.samples_per_s = speed->quantiles().at(0.5);
  }
  if (facts.busy_percent) past.busy_percent = facts.busy_percent->mean;
  past.hours = hours_of(run, facts);
  const Series* power = run.metric("device/power_w");
  if (power != nullptr && power->mean() <= kMaxPowerW) {
    past.energy_kwh = power->mean() * past.hours.total() / 1000;
  }
  past.findings = doctor::diagnose(facts).findings;
  return past;
}

RunFolders find_run_folders(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(Exit::kData, "{}: expected a folder with runs in it or below it, found {}",
                folder.string(), fs::exists(folder, error) ? "a file" : "nothing there");
  }
  const auto is_run = [&](const fs::path& at) {
    return fs::exists(at / "run.json", error) || fs::exists(at / "metrics.jsonl", error);
  };
  if (is_run(folder)) return {.runs = {{folder, ""}}, .links = {}};
  RunFolders found;
  fs::recursive_directory_iterator walk(folder, fs::directory_options::skip_permission_denied,
                                        error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    if (stop_requested()) throw Error(Exit::kStopped, std::string("stopped while runs were read"));
    std::error_code unreadable;
    if (!walk->is_directory(unreadable)) continue;
    if (walk.depth() >= kDeepest) walk.disable_recursion_pending();
    if (!is_run(walk->path())) continue;
    if (walk->is_symlink(unreadable)) {
      found.links.push_back(walk->path());
      continue;
    }
    walk.disable_recursion_pending();
    found.runs.push_back({walk->path(), walk->path().lexically_relative(folder).string()});
  }
  std::ranges::sort(found.runs, {}, &RunFolder::name);
  return found;
}

std::vector<PastRun> find_runs(const fs::path& folder) {
  std::vector<PastRun> runs;
  const RunFolders found = find_run_folders(folder);
  for (const fs::path& link : found.links) {
    log::warning("{}: a link to a run is not followed; name the folder that it leads to",
                 printable(link.string()));
  }
  for (const auto& [at, name] : found.runs) {
    if (stop_requested()) throw Error(Exit::kStopped, std::string("stopped while runs were read"));
    try {
      const RunData run = experiment::read_run(at);
      const bool has_not_begun = run.lines == 0 && run.damaged_lines == 0 && run.torn_bytes == 0;
      for (const std::string& remark : has_not_begun ? run.notices : run.remarks()) {
        log::warning("{}: {}", at.string(), remark);
      }
      runs.push_back(past_run_of(run, printable(name.empty() ? folder.string() : name)));
    } catch (const Error& failure) {
      log::warning("left out: {}", failure.what());
    }
  }
  std::ranges::stable_sort(runs, std::greater<>{}, &PastRun::started_unix_s);
  return runs;
}

}  // namespace brim::history
