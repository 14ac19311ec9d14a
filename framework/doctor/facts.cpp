#include "framework/doctor/facts.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/experiment/run_data.h"
#include "framework/recipe/document.h"

namespace brim::doctor {
namespace {

using experiment::RunData;
using experiment::Series;
using nlohmann::json;

/// The sum over the run without its first line, where there is more than that.
double settled_sum(const Series& series) {
  return series.count() > 1 ? series.sum_after_first() : series.mean();
}

std::optional<double> mean_of(const RunData& run, std::string_view metric) {
  const Series* series = run.metric(metric);
  return series == nullptr ? std::nullopt : std::optional(series->mean());
}

std::optional<double> highest_of(const RunData& run, std::string_view metric) {
  const Series* series = run.metric(metric);
  return series == nullptr ? std::nullopt : std::optional(series->high());
}

std::optional<Spread> spread_of(const RunData& run, std::string_view metric) {
  const Series* series = run.metric(metric);
  if (series == nullptr) return std::nullopt;
  const auto& quantiles = series->quantiles();
  return Spread{series->mean(), quantiles.at(0.05), quantiles.at(0.5), quantiles.at(0.95)};
}

/// A step's threads wait for the one whose core decodes, and no longer if others decode at the same
/// time. Decoding on cores that the step leaves idle costs it nothing.
void read_decoding(const RunData& run, double wall_s, RunFacts& facts) {
  const Series* on_core = run.metric("overlapped_s/decode_cpu");
  if (on_core == nullptr || !facts.cores || facts.is_cuda.value_or(true)) return;
  const auto ranks = static_cast<double>(std::max<int64_t>(1, facts.ranks.value_or(1)));
  const double cores = std::max(1.0, static_cast<double>(*facts.cores) / ranks);
  const double decoding = settled_sum(*on_core) / wall_s;
  const double most = 1 - facts.share(Phase::kDataWait);
  facts.decode_load = std::clamp(decoding / cores, 0.0, most);

  const Series* of_all = run.metric("overlapped_s/decode");
  const Series* of_any = run.metric("overlapped_s/decode_wall");
  const double any_s = of_any == nullptr ? 0 : settled_sum(*of_any);
  if (of_all == nullptr || any_s <= 0) {  // recorded by an older version
    facts.decode_share = facts.decode_load;
    return;
  }
  const double at_once = std::max(1.0, settled_sum(*of_all) / any_s);
  const double idle =
      facts.threads ? std::max(0.0, cores - static_cast<double>(*facts.threads)) : 0.0;
  const double taken = std::clamp(at_once - idle, 0.0, 1.0);
  facts.decode_share = std::clamp(decoding / at_once * taken, 0.0, most);
}

void read_phases(const RunData& run, RunFacts& facts) {
  std::array<PhaseFacts, kPhaseCount> phases{};
  double all = 0;
  bool is_recorded = false;
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    const Series* series =
        run.metric("phases_s/" + std::string(phase_name(static_cast<Phase>(phase))));
    if (series == nullptr) continue;
    is_recorded = true;
    phases[phase] = {std::max(0.0, settled_sum(*series)), series->quantiles().at(0.5),
                     series->quantiles().at(0.95)};
    all += phases[phase].share;
  }
  if (!is_recorded || all <= 0) return;
  for (PhaseFacts& phase : phases) phase.share /= all;
  facts.phases = phases;
  read_decoding(run, all, facts);

  const auto speed = spread_of(run, "samples_per_s");
  if (!facts.step_s || !speed) return;
  const double samples = facts.global_batch ? static_cast<double>(*facts.global_batch)
                                            : speed->p50 * facts.step_s->p50;
  const Series* steps = run.metric("step_s");
  const double step_s =
      settled_sum(*steps) / static_cast<double>(std::max<int64_t>(1, steps->count() - 1));
  const double training_s = step_s * facts.training_share();
  const double fed_s = training_s - step_s * facts.data_share();
  if (training_s <= 0 || fed_s <= 0) return;
  facts.given_per_s = samples / training_s;
  facts.wanted_per_s = samples / fed_s;
}

const json* value_in(const json& record, std::initializer_list<const char*> path) {
  const json* at = &record;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return at;
}

template <class T>
std::optional<T> read_value(const json& record, std::initializer_list<const char*> path) {
  const json* found = value_in(record, path);
  if (found == nullptr) return std::nullopt;
  if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) return std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return std::nullopt;
  } else {
    if (!found->is_number_integer()) return std::nullopt;
  }
  return found->get<T>();
}

/// What run.json says of the job and its machine.
void read_record(const json& record, RunFacts& facts) {
  if (const auto device = read_value<std::string>(record, {"device"})) {
    facts.is_cuda = device->starts_with("cuda");
  }
  facts.cores = read_value<int64_t>(record, {"machine", "cores"});
  facts.ranks = read_value<int64_t>(record, {"ranks"});
  facts.precision = read_value<std::string>(record, {"job", "precision"}).value_or("");
  facts.has_matrix_units = read_value<bool>(record, {"job", "matrix_units"});
  facts.has_convolutions = read_value<bool>(record, {"job", "convolutions"});
  facts.is_channels_last = read_value<bool>(record, {"job", "channels_last"});
  facts.micro_batch = read_value<int64_t>(record, {"job", "micro_batch"});
  facts.threads = read_value<int64_t>(record, {"job", "threads"});
}

template <class T>
const T* recipe_value(const recipe::Value& document, std::initializer_list<std::string_view> path) {
  const recipe::Value* at = &document;
  for (const std::string_view key : path) {
    const auto* table = std::get_if<recipe::Table>(&at->data);
    if (table == nullptr) return nullptr;
    const auto found = table->entries.find(key);
    if (found == table->entries.end()) return nullptr;
    at = &found->second;
  }
  return std::get_if<T>(&at->data);
}

void read_recipe(const std::string& text, RunFacts& facts) {
  if (text.empty()) return;
  try {
    const recipe::Value document = recipe::parse(text, "recipe.toml");
    const auto word = [&](std::initializer_list<std::string_view> path) {
      const auto* value = recipe_value<std::string>(document, path);
      return value == nullptr ? std::string() : *value;
    };
    facts.model = word({"model", "name"});
    facts.decode = word({"data", "decode"});
    facts.cache = word({"data", "cache"});
    facts.data_kind = word({"data", "kind"});
    facts.balance = word({"distributed", "balance"});
    if (const auto* stages = recipe_value<int64_t>(document, {"distributed", "stages"})) {
      facts.stages = *stages;
    }
    const auto is_set = [&](std::string_view key) {
      const auto* value = recipe_value<bool>(document, {"distributed", key});
      return value != nullptr && *value;
    };
    facts.has_passes_alone = word({"distributed", "strategy"}) == "ddp" &&
                             facts.stages.value_or(1) == 1 && !is_set("zero") &&
                             !is_set("sync_batch_norm") && !is_set("unused_parameters") &&
                             !is_set("static_graph");
    const auto* cut = recipe_value<recipe::Array>(document, {"distributed", "cut"});
    facts.has_given_cut = cut != nullptr && !cut->empty();
    const auto* deterministic = recipe_value<bool>(document, {"run", "deterministic"});
    facts.is_deterministic = deterministic != nullptr && *deterministic;
    facts.compress = word({"distributed", "compress"});
    facts.optimizer = word({"optimizer", "name"});
    facts.batch_rule = word({"optimizer", "batch_rule"});
    const auto read_number = [&](std::initializer_list<std::string_view> path,
                                 std::optional<int64_t>& number) {
      if (const auto* value = recipe_value<int64_t>(document, path)) number = *value;
    };
    read_number({"data", "prefetch"}, facts.prefetch);
    read_number({"telemetry", "every_steps"}, facts.metrics_every);
    read_number({"telemetry", "histograms_every_steps"}, facts.histograms_every);
    if (const auto* fast = recipe_value<bool>(document, {"data", "fast_decode"})) {
      facts.fast_decode = *fast;
    }
    if (const auto* global = recipe_value<int64_t>(document, {"batch", "global"})) {
      facts.global_batch = *global;
    }
    if (const auto* recorded = recipe_value<bool>(document, {"train", "cuda_graph"})) {
      facts.has_cuda_graph = *recorded;
    }
    if (const auto* workers = recipe_value<int64_t>(document, {"data", "workers"})) {
      facts.workers = *workers;
      facts.workers_are_auto = false;
    }
    const std::string precision = word({"precision", "mode"});
    if (facts.precision.empty() && precision != "auto") facts.precision = precision;
    const auto* micro = recipe_value<int64_t>(document, {"batch", "micro"});
    if (!facts.micro_batch) facts.micro_batch = micro != nullptr ? *micro : facts.global_batch;
  } catch (const Error&) {
    return;
  }
}

void read_device(const RunData& run, RunFacts& facts) {
  facts.busy_percent = spread_of(run, "device/sm_percent");
  if (!facts.busy_percent) facts.busy_percent = spread_of(run, "device/busy_percent");
  facts.slowed_share = mean_of(run, "device/slowed");
  facts.peak_bytes = highest_of(run, "memory/peak_bytes");
  facts.cap_bytes = highest_of(run, "memory/cap_bytes");
  if (facts.cap_bytes && *facts.cap_bytes <= 0) facts.cap_bytes.reset();
  facts.host_syncs = mean_of(run, "device/host_syncs");
}

void read_machine(const RunData& run, RunFacts& facts) {
  facts.swapped_bytes = highest_of(run, "process/swapped_bytes");
  // Usual ones: at its start a process reads its libraries from the disk.
  if (const auto faults = spread_of(run, "process/major_faults_per_s")) {
    facts.major_faults_per_s = faults->p50;
  }
  facts.io_stalled_percent = mean_of(run, "machine/io_stalled_percent");
  const auto load = spread_of(run, "machine/load");
  if (load && facts.cores && *facts.cores > 0) {
    facts.load_per_core = load->p50 / static_cast<double>(*facts.cores);
  }
}

/// Of a run that has ended, which has said it exactly.
void read_slowest(const json& ranks, RunFacts& facts) {
  double max_s = -1;
  for (const json& rank : ranks) {
    const json* busy_s = value_in(rank, {"busy_s"});
    const auto number = read_value<int64_t>(rank, {"rank"});
    if (!number || busy_s == nullptr || !busy_s->is_number()) continue;
    if (busy_s->get<double>() <= max_s) continue;
    max_s = busy_s->get<double>();
    facts.slowest_rank = number;
  }
}

void read_ranks(const RunData& run, RunFacts& facts) {
  facts.slowest_rank_ratio = mean_of(run, "ranks/slowest_ratio");
  facts.slowest_to_rank_0 = mean_of(run, "ranks/slowest_to_rank_0");
  facts.largest_share_ratio = mean_of(run, "ranks/largest_share_ratio");
  if (const auto slowest = spread_of(run, "ranks/slowest")) {
    facts.slowest_rank = static_cast<int64_t>(slowest->p50 + 0.5);
  }
  const json* ranks = value_in(run.record, {"per_rank"});
  if (ranks == nullptr || !ranks->is_array()) return;
  read_slowest(*ranks, facts);
  for (const json& rank : *ranks) {
    if (read_value<int64_t>(rank, {"rank"}) != facts.slowest_rank) continue;
    facts.slowest_place = printable(read_value<std::string>(rank, {"place"}).value_or(""));
  }
}

}  // namespace

double RunFacts::compute_share() const {
  return share(Phase::kForward) + share(Phase::kBackward) + share(Phase::kOptimizer);
}

RunFacts facts_of(const RunData& run) {
  RunFacts facts;
  facts.steps = run.steps();
  read_record(run.record, facts);
  read_recipe(run.recipe, facts);
  if (!facts.workers && facts.cores) facts.workers = std::max<int64_t>(1, *facts.cores - 1);
  facts.step_s = spread_of(run, "step_s");
  if (facts.step_s) facts.seconds = facts.step_s->mean * static_cast<double>(facts.steps);
  read_phases(run, facts);
  read_device(run, facts);
  read_machine(run, facts);
  read_ranks(run, facts);
  return facts;
}

}  // namespace brim::doctor
