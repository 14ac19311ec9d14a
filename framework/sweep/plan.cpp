#include "framework/sweep/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {
namespace {

constexpr int kFormat = 1;

}  // namespace

nlohmann::json to_json(const Plan& plan) {
  return {{"format", kFormat},
          {"name", plan.name},
          {"vary", plan.vary},
          {"search", kSearchWords[static_cast<size_t>(plan.search)]},
          {"seed", plan.seed},
          {"metric", plan.metric},
          {"lower_is_better", plan.is_lower_better},
          {"rungs", plan.rungs},
          {"reduction", plan.reduction},
          {"per_device", plan.per_device},
          {"devices_per_trial", plan.devices_per_trial},
          {"devices", plan.devices},
          {"keep_free", plan.keep_free},
          {"idle_free_memory", plan.idle_free_memory},
          {"idle_utilisation", plan.idle_utilisation}};
}

Plan plan_of(const std::string& text, const std::string& where) {
  try {
    const nlohmann::json json = parse_json(text, where);
    if (json.at("format") != kFormat) {
      throw Error(Exit::kData,
                  "{}: expected a sweep of format {}, found {}; it was made by another "
                  "version of Brim",
                  where, kFormat, json.at("format").dump());
    }
    Plan plan;
    json.at("name").get_to(plan.name);
    json.at("vary").get_to(plan.vary);
    const auto search = json.at("search").get<std::string>();
    const auto found = std::ranges::find(kSearchWords, search);
    if (found == kSearchWords.end()) {
      throw Error(Exit::kData, "{}: unknown search {}", where, in_quotes(search));
    }
    plan.search = static_cast<Search>(found - kSearchWords.begin());
    json.at("seed").get_to(plan.seed);
    json.at("metric").get_to(plan.metric);
    json.at("lower_is_better").get_to(plan.is_lower_better);
    json.at("rungs").get_to(plan.rungs);
    json.at("reduction").get_to(plan.reduction);
    json.at("per_device").get_to(plan.per_device);
    json.at("devices_per_trial").get_to(plan.devices_per_trial);
    json.at("devices").get_to(plan.devices);
    json.at("keep_free").get_to(plan.keep_free);
    json.at("idle_free_memory").get_to(plan.idle_free_memory);
    json.at("idle_utilisation").get_to(plan.idle_utilisation);
    const bool is_sound =
        plan.reduction >= 2 && plan.per_device >= 1 && plan.per_device <= 1024 &&
        plan.devices_per_trial >= 1 && plan.devices_per_trial <= 1024 && plan.keep_free >= 0 &&
        std::ranges::is_sorted(plan.rungs) &&
        (plan.rungs.empty() || (plan.rungs[0] > 0 && plan.rungs.back() <= kMaxCount));
    if (!is_sound) throw Error(Exit::kData, "{}: its numbers make no plan of a sweep", where);
    return plan;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Exit::kData, "{}: expected the plan of a sweep: {}", where, json_complaint(error));
  } catch (const Error& error) {
    throw Error(Exit::kData, "{}", error.what());
  }
}

}  // namespace brim::sweep
