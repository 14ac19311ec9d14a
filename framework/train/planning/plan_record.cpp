#include "framework/train/planning/plan_record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/plan/ranking.h"
#include "framework/telemetry/run_record.h"
#include "framework/train/planning/counted.h"
#include "framework/train/planning/planner.h"

namespace brim::train {
namespace {

using nlohmann::json;

std::optional<double> number(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// nullopt where the plan says something else.
std::optional<plan::Strategy> strategy_in(const json& plan) {
  const auto name = plan.is_object() ? plan.find("strategy") : plan.end();
  const auto shards = integer_at(plan, "shards"), stages = integer_at(plan, "stages");
  if (name == plan.end() || !name->is_string() || !shards || *shards < 0) return std::nullopt;
  if (!stages || *stages < 1) return std::nullopt;
  using plan::Sharing;
  for (const auto sharing : {Sharing::kDdp, Sharing::kZero1, Sharing::kFsdp, Sharing::kStages}) {
    if (*name == plan::name_of(sharing)) return plan::Strategy{sharing, *shards, *stages};
  }
  return std::nullopt;
}

/// The median over the lines of metrics.jsonl of a step's seconds, evaluations and checkpoints
/// apart.
std::optional<double> median_step_s(const RunFolder& folder, int64_t after_step) {
  std::vector<double> seconds;
  std::ifstream file(folder.metrics());
  for (std::string text; std::getline(file, text);) {
    const json line = json::parse(text, nullptr, false);
    const auto step = integer_at(line, "step");
    const auto taken = number(line, "step_s");
    if (!step || !taken || *step <= after_step) continue;
    const json phases = line.value("phases_s", json::object());
    seconds.push_back(*taken - number(phases, "evaluation").value_or(0) -
                      number(phases, "checkpoint").value_or(0));
  }
  if (seconds.empty()) return std::nullopt;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

/// Of rank 0, or of the stage that held most.
std::optional<int64_t> highest_peak(const json& memory) {
  auto peak = integer_at(memory, "peak_bytes");
  for (const json& stage :
       memory.is_object() ? memory.value("stage_peak_bytes", json::array()) : json()) {
    if (stage.is_number_integer()) peak = std::max(peak.value_or(0), stage.get<int64_t>());
  }
  return peak;
}

/// "3 % more", "12 % less".
std::string off_by(double measured, double predicted) {
  const double share = measured / predicted - 1;
  return fmt::format("{:.0f} % {}", 100 * std::abs(share), share < 0 ? "less" : "more");
}

}  // namespace

json read_plan(const RunFolder& folder, int64_t world) {
  const json record = read_record(folder);
  json plan = record.value("plan", json());
  const auto strategy = strategy_in(plan);
  if (!strategy || integer_at(record, "ranks") != world) return nullptr;
  if (strategy->shards > 0 && world % strategy->shards != 0) return nullptr;
  if (world % strategy->stages != 0) return nullptr;
  plan.erase("measured");
  return plan;
}

void take_choice(const json& plan, JobConfig& job) {
  const auto strategy = strategy_in(plan);
  if (strategy) take(*strategy, job);
  const auto micro = integer_at(plan, "micro");
  const bool is_smaller = integer_at(plan, "recipe_micro") > micro;
  // A pipeline's share of a step is larger than a rank's, and must be cut into micro-batches.
  const bool is_cut = strategy && strategy->sharing == plan::Sharing::kStages;
  if (!micro || *micro < 1 || !job.batch.micro || !(is_smaller || is_cut)) return;
  if (is_smaller) {
    log::info("no strategy fits with micro-batch {}; training with {}",
              *integer_at(plan, "recipe_micro"), *micro);
  }
  job.batch.micro = *micro;
}

void report_prediction(const RunFolder& folder, const JobConfig& job, int64_t world) {
  const json record = read_record(folder);
  json plan = record.value("plan", json());
  const auto predicted = integer_at(plan, "peak_bytes");
  const auto predicted_s = number(plan, "step_s");
  const auto peak = highest_peak(record.value("memory", json()));
  const auto step_s = median_step_s(folder, integer_at(record, "after_step").value_or(0));
  if (!predicted || *predicted < 1 || !predicted_s || *predicted_s <= 0 || !peak) return;
  const auto strategy = strategy_in(plan);
  if (!strategy || !job.batch.global) return;
  const int64_t share = PlannedRanks().share(job, std::max<int64_t>(1, world / strategy->stages));
  if (std::min(job.batch.micro_or_all(), share) != integer_at(plan, "micro")) return;
  plan["measured"] = {{"peak_bytes", *peak}};
  std::string text = fmt::format(
      "the plan predicted tensors of {} with micro-batch {}; found {}, {}",
      format_bytes(*predicted), integer_at(plan, "micro").value_or(0), format_bytes(*peak),
      off_by(static_cast<double>(*peak), static_cast<double>(*predicted)));
  if (step_s) {  // a run of few steps has no line of metrics
    plan["measured"]["step_s"] = *step_s;
    text += fmt::format("; and {} s a step, found {} s, {}", format_number(*predicted_s),
                        format_number(*step_s), off_by(*step_s, *predicted_s));
  }
  log::info("{}", text);
  telemetry::add_to_record(folder.record(), "plan", std::move(plan));
}

}  // namespace brim::train
