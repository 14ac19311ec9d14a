#include "framework/experiment/bench/trend.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/columns.h"
#include "framework/base/timestamp.h"
#include "framework/base/units.h"
#include "framework/experiment/bench/statistics.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr size_t kMaxRunsBefore = 100;  // what ratio_of() takes
constexpr size_t kWidestColumn = 60;

/// A text or a number of the environment, "?" where it has none there.
std::string word_at(const json& environment, const char* pointer) {
  const json::json_pointer place(pointer);
  if (!environment.contains(place)) return "?";
  const json& value = environment.at(place);
  if (value.is_string()) return value.get<std::string>();
  return value.is_number() ? value.dump() : "?";
}

/// What decides how fast a recipe can be.
std::string machine_of(const json& environment) {
  const std::string device = word_at(environment, "/device");
  std::string text = device;
  if (const std::string ranks = word_at(environment, "/ranks"); ranks != "1" && ranks != "?") {
    text += fmt::format(", {} ranks", ranks);
  }
  std::map<std::string, int> gpus;
  if (device != "cpu" && environment.contains("gpus") && environment["gpus"].is_array()) {
    for (const json& gpu : environment["gpus"]) ++gpus[word_at(gpu, "/name")];
  }
  for (const auto& [name, count] : gpus) text += fmt::format(", {} × {}", count, name);
  return text + fmt::format(", {} cores of {}", word_at(environment, "/machine/usable_cores"),
                            word_at(environment, "/machine/cpu"));
}

/// The same variant of results on the same machine, the oldest first.
struct ResultSeries {
  std::vector<const BenchRecord*> records;
  std::vector<const RecordedVariant*> variants;
};

std::vector<double> runs_before(const ResultSeries& series) {
  std::vector<double> runs;
  for (size_t i = series.variants.size() - 1; i-- > 0;) {
    const std::vector<double>& more = series.variants[i]->samples_per_s;
    if (!runs.empty() && runs.size() + more.size() > kMaxRunsBefore) break;
    runs.insert(runs.end(), more.begin(), more.end());
  }
  return runs;
}

void judge_newest(const ResultSeries& series, double margin, Trend& trend) {
  if (series.variants.size() < 2) return;
  const RecordedVariant& newest = *series.variants.back();
  trend.ratio = ratio_of(newest.samples_per_s, runs_before(series));
  trend.verdict = judge(*trend.ratio, margin);
  std::vector<double> medians;
  for (const TrendPoint& point : trend.points) medians.push_back(point.samples_per_s);
  medians.pop_back();
  trend.variation = coefficient_of_variation(medians);
  trend.has_new_recipe = newest.recipe != series.variants[series.variants.size() - 2]->recipe;
}

std::string in_interval(const TrendPoint& point) {
  return fmt::format("{}–{} ({:.1f} %)", format_number(point.interval.low),
                     format_number(point.interval.high), 100 * point.interval.confidence);
}

/// What the last lines of a trend say.
std::string verdict_text(const Trend& trend) {
  if (!trend.ratio) return "newest: the first result; nothing to compare it with\n";
  const auto& [low, high, confidence] = trend.ratio->interval;
  std::string text = fmt::format(
      "newest: {:.3f}× as fast as {} before it ({:.3f}–{:.3f} with {:.1f} %): {}\n",
      trend.ratio->value,
      trend.points.size() == 2 ? "the one" : fmt::format("the {}", trend.points.size() - 1), low,
      high, 100 * confidence, word_of(trend.verdict));
  if (confidence < kConfidence) text += kTooFewRunsNote;
  if (trend.variation > 0) {
    text += fmt::format("note: the results before it vary by {:.1f} %\n", 100 * trend.variation);
  }
  if (trend.has_new_recipe) {
    text += "note: its recipe differs from that of the result before it\n";
  }
  return text;
}

json number_or_null(const std::optional<Ratio>& ratio, double Interval::*member) {
  return ratio ? json(ratio->interval.*member) : json();
}

}  // namespace

std::vector<Trend> trends_of(std::vector<BenchRecord> records, double margin) {
  std::ranges::stable_sort(records, {},
                           [](const BenchRecord& record) { return unix_time_s(record.started); });
  std::map<std::pair<std::string, std::string>, ResultSeries> all;
  for (const BenchRecord& record : records) {
    for (const RecordedVariant& variant : record.variants) {
      ResultSeries& series = all[{variant.name, machine_of(record.environment)}];
      series.records.push_back(&record);
      series.variants.push_back(&variant);
    }
  }
  std::vector<Trend> trends;
  for (const auto& [key, series] : all) {
    Trend trend{.name = key.first,
                .machine = key.second,
                .points = {},
                .is_newest = series.records.back() == &records.back()};
    for (size_t i = 0; i < series.variants.size(); ++i) {
      const std::vector<double>& runs = series.variants[i]->samples_per_s;
      trend.points.push_back({.started = series.records[i]->started,
                              .commit = word_at(series.records[i]->environment, "/build/commit"),
                              .samples_per_s = median(runs),
                              .interval = median_interval(runs)});
    }
    judge_newest(series, margin, trend);
    trends.push_back(std::move(trend));
  }
  return trends;
}

int status_of(std::span<const Trend> trends) {
  std::vector<Verdict> verdicts;
  for (const Trend& trend : trends) {
    if (trend.is_newest) verdicts.push_back(trend.verdict);
  }
  return status_of(verdicts);
}

std::string report(std::span<const Trend> trends) {
  std::string text;
  for (const Trend& trend : trends) {
    if (!text.empty()) text += "\n";
    text += fmt::format("{} on {}\n", trend.name, trend.machine);
    std::vector<std::vector<std::string>> rows = {{"started", "commit", "samples/s", "interval"}};
    for (const TrendPoint& point : trend.points) {
      rows.push_back(
          {point.started, point.commit, format_number(point.samples_per_s), in_interval(point)});
    }
    text += in_columns(rows, kWidestColumn) + verdict_text(trend);
  }
  return text;
}

json to_json(std::span<const Trend> trends) {
  json list = json::array();
  for (const Trend& trend : trends) {
    json results = json::array();
    for (const TrendPoint& point : trend.points) {
      results.push_back({{"started", point.started},
                         {"commit", point.commit},
                         {"samples_per_s", point.samples_per_s},
                         {"low", point.interval.low},
                         {"high", point.interval.high},
                         {"confidence", point.interval.confidence}});
    }
    list.push_back({{"name", trend.name},
                    {"machine", trend.machine},
                    {"is_newest", trend.is_newest},
                    {"results", std::move(results)},
                    {"ratio", trend.ratio ? json(trend.ratio->value) : json()},
                    {"low", number_or_null(trend.ratio, &Interval::low)},
                    {"high", number_or_null(trend.ratio, &Interval::high)},
                    {"confidence", number_or_null(trend.ratio, &Interval::confidence)},
                    {"variation", trend.variation},
                    {"has_new_recipe", trend.has_new_recipe},
                    {"verdict", trend.ratio ? json(word_of(trend.verdict)) : json()}});
  }
  return {{"trends", std::move(list)}, {"status", status_of(trends)}};
}

}  // namespace brim::experiment
