#include "framework/train/run/history.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/printable.h"
#include "framework/train/job.h"

namespace brim::train {
namespace {

// A checkpoint's state.json has room for so many, with their names.
constexpr size_t kMaxReplaced = 50'000;
constexpr size_t kMaxNameBytes = 256;

/// Throws nlohmann::json::exception for anything but an integer.
int64_t integer_of(const nlohmann::json& json) { return json.get_ref<const int64_t&>(); }

}  // namespace

bool are_other_data(const HistoryPart& before, const HistoryPart& part) {
  return !before.data.empty() && !part.data.empty() && before.data != part.data;
}

void History::begin(HistoryPart part) {
  std::erase_if(parts, [&](const HistoryPart& one) { return one.after_step >= part.after_step; });
  parts.push_back(std::move(part));
}

void History::add(std::vector<data::Replacement> more) {
  for (data::Replacement& one : more) {
    if (replaced.size() == kMaxReplaced) {
      ++replaced_left_out;
      continue;
    }
    one.name = printable(one.name.substr(0, kMaxNameBytes));
    replaced.push_back(std::move(one));
  }
  // Each rank has its own of the same steps.
  std::ranges::sort(replaced, {}, [](const data::Replacement& one) {
    return std::pair(one.epoch, one.position);
  });
}

std::string shares_of(const JobConfig& job) {
  if (job.distributed.balance == distributed::Balance::kThroughput) return "throughput";
  if (job.distributed.balance == distributed::Balance::kCost) return "cost";
  return job.data.augment.mix.mixes() ? "pairs" : "even";
}

nlohmann::json to_json(const std::vector<data::Replacement>& replaced) {
  nlohmann::json json = {{"replaced", nlohmann::json::array()},
                         {"names", nlohmann::json::object()}};
  for (const data::Replacement& one : replaced) {
    json["replaced"].push_back({one.epoch, one.position, one.sample, one.by});
    json["names"][std::to_string(one.sample)] = printable(one.name);
  }
  return json;
}

std::vector<data::Replacement> read_replacements(const nlohmann::json& json) {
  std::vector<data::Replacement> replaced;
  for (const nlohmann::json& one : json.at("replaced")) {
    const int64_t sample = integer_of(one.at(2));
    replaced.push_back({integer_of(one.at(0)), integer_of(one.at(1)), sample, integer_of(one.at(3)),
                        json.at("names").at(std::to_string(sample)).get<std::string>()});
  }
  return replaced;
}

nlohmann::json to_json(const History& history) {
  nlohmann::json json = to_json(history.replaced);
  json["replaced_left_out"] = history.replaced_left_out;
  json["parts"] = nlohmann::json::array();
  for (const HistoryPart& part : history.parts) {
    json["parts"].push_back({{"after_step", part.after_step},
                             {"ranks", part.ranks},
                             {"shares", part.shares},
                             {"stages", part.stages},
                             {"data", part.data}});
  }
  return json;
}

History read_history(const nlohmann::json& json) {
  History history;
  history.replaced = read_replacements(json);
  history.replaced_left_out = integer_of(json.at("replaced_left_out"));
  for (const nlohmann::json& part : json.at("parts")) {
    history.parts.push_back({integer_of(part.at("after_step")), integer_of(part.at("ranks")),
                             part.at("shares").get<std::string>(),
                             part.contains("stages") ? integer_of(part.at("stages")) : 1,
                             part.value("data", std::string())});
  }
  return history;
}

}  // namespace brim::train
