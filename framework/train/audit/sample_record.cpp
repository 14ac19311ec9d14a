#include "framework/train/audit/sample_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/units.h"
#include "framework/data/order/plan.h"
#include "framework/train/run/state.h"

namespace brim::train {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 33;  // a bit each: 1 GiB
constexpr int64_t kMaxSeen = int64_t{1} << 36;     // over all epochs: hours of work
constexpr int64_t kMaxRanks = int64_t{1} << 20;
constexpr int64_t kMaxRecordedSteps = int64_t{1} << 48;

/// An integer from `low` to `high`.
int64_t integer(const nlohmann::json& json, const std::string& what, int64_t low, int64_t high) {
  if (json.is_number_integer() && json >= low && json <= high) return json.get<int64_t>();
  throw Error(Exit::kCheckpoint, "{}: expected a number from {} to {}, found {}", what, low, high,
              json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 40));
}

void require(bool is_so, const char* what) {
  if (!is_so) throw Error(Exit::kCheckpoint, std::string(what));
}

void check_history(const SampleRecord& record) {
  int64_t last = -1;
  for (const HistoryPart& part : record.history.parts) {
    require(part.after_step > last && part.after_step <= record.step,
            "history.parts: expected later and later steps of the run");
    require(part.ranks >= 1 && part.ranks <= kMaxRanks,
            "history.parts: expected from 1 to 1,048,576 ranks");
    require(part.stages >= 1 && part.stages <= kMaxRanks / part.ranks,
            "history.parts: expected 1 or more stages, on at most 1,048,576 ranks");
    last = part.after_step;
  }
  const auto is_sample = [&](int64_t number) { return number >= 0 && number < record.samples; };
  for (const data::Replacement& one : record.history.replaced) {
    require(is_sample(one.sample) && is_sample(one.by) && is_sample(one.position) &&
                one.epoch >= 0 && one.epoch < record.epochs(),
            "history.replaced: expected samples and epochs of the run");
  }
  require(record.history.replaced_left_out >= 0, "history.replaced_left_out: expected 0 or more");
}

SampleRecord parse_record(const nlohmann::json& state) {
  const nlohmann::json& order = state.at("order");
  SampleRecord record;
  record.step = integer(state.at("step"), "step", 0, kMaxRecordedSteps);
  record.samples = integer(order.at("training samples"), "training samples", 1, kMaxSamples);
  record.global_batch = integer(order.at("batch.global"), "batch.global", 1, kMaxRecordedSteps);
  record.seed = static_cast<uint64_t>(order.at("run.seed").get_ref<const int64_t&>());
  record.drop_last = order.at("data.drop_last").get<bool>();
  record.order = order.at("data.sampler").get<std::string>();
  require(record.steps_per_epoch() > 0, "batch.global: expected no more than the samples");
  if (record.epochs() > kMaxSeen / record.samples) {
    throw Error(Exit::kCheckpoint, "expected at most {} samples over all epochs, found {} × {}",
                format_count(kMaxSeen), format_count(record.epochs()),
                format_count(record.samples));
  }
  if (state.contains("history")) record.history = read_history(state.at("history"));
  check_history(record);
  return record;
}

/// Nothing where the record of a process tells of no repeated steps.
std::optional<RepeatedSteps> repeated_steps(const nlohmann::json& process) {
  if (!process.is_object()) return std::nullopt;
  const auto step = [&](const char* key) -> int64_t {
    const auto found = process.find(key);
    const bool is_step = found != process.end() && found->is_number_integer() && *found >= 0 &&
                         *found <= kMaxRecordedSteps;
    return is_step ? found->get<int64_t>() : -1;
  };
  const RepeatedSteps steps{step("after_step"), step("repeats_to")};
  if (steps.after_step < 0 || steps.last_step <= steps.after_step) return std::nullopt;
  return steps;
}

}  // namespace

int64_t SampleRecord::steps_per_epoch() const {
  return data::steps_per_epoch(samples, global_batch, drop_last);
}

int64_t SampleRecord::epochs() const {
  return step / steps_per_epoch() + (step % steps_per_epoch() != 0 ? 1 : 0);
}

int64_t SampleRecord::steps_of(int64_t epoch) const {
  return std::min(steps_per_epoch(), step - epoch * steps_per_epoch());
}

int64_t SampleRecord::positions_of(int64_t steps) const {
  return steps == 0 ? 0
                    : (steps - 1) * global_batch +
                          std::min(global_batch, samples - (steps - 1) * global_batch);
}

const HistoryPart* SampleRecord::part_of(int64_t step) const {
  const auto next = std::ranges::lower_bound(history.parts, step, {}, &HistoryPart::after_step);
  return next == history.parts.begin() ? nullptr : &*std::prev(next);
}

SampleRecord read_sample_record(const std::filesystem::path& checkpoint) {
  const nlohmann::json state = read_state_json(checkpoint);
  const std::string file = (checkpoint / "state.json").string();
  try {
    return parse_record(state);
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Exit::kCheckpoint, "{}: expected the state of a Brim run: {}", file,
                json_complaint(problem));
  } catch (const Error& error) {
    throw Error(error.status(), "{}: {}; use another checkpoint", file, error.what());
  }
}

std::vector<RepeatedSteps> read_repeated_steps(const nlohmann::json& run) {
  std::vector<RepeatedSteps> repeated;
  const auto add = [&](const nlohmann::json& process) {
    if (const auto steps = repeated_steps(process)) repeated.push_back(*steps);
  };
  const auto earlier = run.find("earlier");
  if (earlier != run.end() && earlier->is_array()) std::ranges::for_each(*earlier, add);
  add(run);
  return repeated;
}

}  // namespace brim::train
