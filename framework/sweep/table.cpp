#include "framework/sweep/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "framework/base/columns.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/sweep/importance.h"

namespace brim::sweep {
namespace {

using Row = std::vector<std::string>;

constexpr size_t kWidest = 60;  // characters of a column but the last

std::string in_csv(std::string_view cell) {
  const std::string text = printable_lines(cell);
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

/// Of several errors, a line each.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? "; " : std::string(1, c);
  return printable(line);
}

int64_t count(std::span<const Trial> trials, State state) {
  return std::ranges::count(trials, state, &Trial::state);
}

}  // namespace

std::vector<size_t> ranking(const Plan& plan, std::span<const Trial> trials) {
  std::vector<size_t> order(trials.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const RungResult* left = trials[a].last();
    const RungResult* right = trials[b].last();
    if (left == nullptr || right == nullptr) return left != nullptr && right == nullptr;
    return plan.is_better(left->metric, right->metric);
  });
  return order;
}

std::string summary(const Plan& plan, std::span<const Trial> trials) {
  std::string text = fmt::format("{} of {} done", count(trials, State::kDone),
                                 format_plural(static_cast<int64_t>(trials.size()), "trial"));
  constexpr std::array kOthers = {State::kRunning, State::kStopped, State::kPaused, State::kFailed,
                                  State::kCancelled};
  for (const State state : kOthers) {
    if (const int64_t number = count(trials, state); number > 0) {
      text += fmt::format(", {} {}", number, word_of(state));
    }
  }
  const auto order = ranking(plan, trials);
  if (!order.empty() && trials[order[0]].last() != nullptr) {
    text += fmt::format("; best {} {} (trial {})", plan.metric,
                        format_number(trials[order[0]].last()->metric), trials[order[0]].id);
  }
  return text;
}

std::string table(const Plan& plan, std::span<const Trial> trials) {
  const std::vector<std::string> keys = keys_of(trials);
  Row head = {"trial", "state", plan.metric, "step", "time"};
  head.insert(head.end(), keys.begin(), keys.end());
  head.emplace_back("reason");
  std::vector<Row> rows = {std::move(head)};
  for (const size_t place : ranking(plan, trials)) {
    const Trial& trial = trials[place];
    const RungResult* last = trial.last();
    Row row = {std::to_string(trial.id), std::string(word_of(trial.state)),
               last == nullptr ? "-" : format_number(last->metric),
               last == nullptr ? "-" : std::to_string(last->step), format_duration(trial.seconds)};
    for (const std::string& key : keys) row.push_back(printable(value_at(trial, key)));
    row.push_back(in_one_line(trial.reason));
    rows.push_back(std::move(row));
  }
  return in_columns(rows, kWidest) + summary(plan, trials) + "\n";
}

nlohmann::json to_json(const Plan& plan, std::span<const Trial> trials) {
  nlohmann::json list = nlohmann::json::array();
  for (const Trial& trial : trials) {
    nlohmann::json settings = nlohmann::json::object();
    for (const std::string& setting : trial.settings) {
      settings[key_of(setting)] = value_of(setting);
    }
    nlohmann::json rungs = nlohmann::json::array();
    for (const RungResult& result : trial.results) {
      rungs.push_back({{"step", result.step}, {plan.metric, result.metric}});
    }
    const RungResult* last = trial.last();
    list.push_back({{"trial", trial.id},
                    {"state", word_of(trial.state)},
                    {"settings", std::move(settings)},
                    {"metric", last == nullptr ? nlohmann::json() : nlohmann::json(last->metric)},
                    {"step", last == nullptr ? nlohmann::json() : nlohmann::json(last->step)},
                    {"rungs", std::move(rungs)},
                    {"seconds", trial.seconds},
                    {"failures", trial.failures},
                    {"reason", trial.reason}});
  }
  nlohmann::json importance = nlohmann::json::array();
  for (const auto& [key, share] : importance_of_keys(plan, trials)) {
    importance.push_back({{"key", key}, {"share", share}});
  }
  const auto order = ranking(plan, trials);
  const bool has_best = !order.empty() && trials[order[0]].last() != nullptr;
  return {{"metric", plan.metric},
          {"lower_is_better", plan.is_lower_better},
          {"search", kSearchWords[static_cast<size_t>(plan.search)]},
          {"rungs", plan.rungs},
          {"best", has_best ? nlohmann::json(trials[order[0]].id) : nlohmann::json()},
          {"importance", std::move(importance)},
          {"trials", std::move(list)}};
}

std::string csv(const Plan& plan, std::span<const Trial> trials) {
  const std::vector<std::string> keys = keys_of(trials);
  std::string text = "trial,state," + in_csv(plan.metric) + ",step,seconds,";
  for (const std::string& key : keys) text += in_csv(key) + ",";
  text += "reason\r\n";
  for (const Trial& trial : trials) {
    const RungResult* last = trial.last();
    text += fmt::format("{},{},", trial.id, word_of(trial.state));
    text += last == nullptr ? ",," : fmt::format("{},{},", last->metric, last->step);
    text += fmt::format("{:.3f},", trial.seconds);
    for (const std::string& key : keys) text += in_csv(value_at(trial, key)) + ",";
    text += in_csv(trial.reason) + "\r\n";
  }
  return text;
}

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

std::string value_of(const std::string& setting) { return setting.substr(setting.find('=') + 1); }

std::vector<std::string> keys_of(std::span<const Trial> trials) {
  std::vector<std::string> keys;
  for (const Trial& trial : trials) {
    for (const std::string& setting : trial.settings) {
      std::string key = key_of(setting);
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(std::move(key));
    }
  }
  return keys;
}

std::string value_at(const Trial& trial, const std::string& key) {
  for (const std::string& setting : trial.settings) {
    if (setting.starts_with(key + "=")) return value_of(setting);
  }
  return "";
}

std::optional<double> number_in(const std::string& word) {
  double value = 0.0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = code == std::errc() && end == word.data() + word.size();
  return is_number && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace brim::sweep
