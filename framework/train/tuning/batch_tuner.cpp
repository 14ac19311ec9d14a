#include "framework/train/tuning/batch_tuner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/device/memory/advice.h"
#include "framework/nn/random_state.h"
#include "framework/train/inputs.h"
#include "framework/train/stage_plan.h"
#include "framework/train/tuning/prober.h"
#include "framework/train/tuning/tuning_cache.h"

namespace brim::train {
namespace {

/// LibTorch's generators as they were, afterwards.
class KeepRandomState {
 public:
  explicit KeepRandomState(c10::Device device) : state_(device) {}
  ~KeepRandomState() { state_.restore(); }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  nn::RandomState state_;
};

/// Pairs stay whole.
/// What a rank, or a pipeline, has of the global batch at most or, where that grows too, of the
/// training samples.
int64_t share_of_part(const JobConfig& job, int64_t samples, int64_t parts) {
  const int64_t unit = job.data.augment.mix.unit();
  if (job.batch.global) return (*job.batch.global / unit + parts - 1) / parts * unit;
  return std::max<int64_t>(1, samples / unit / parts) * unit;
}

/// Not even the smallest size fits: says what takes the memory, and what would help.
[[noreturn]] void refuse_to_fit(Prober& prober, const tune::SearchOptions& options,
                                const DataShape& shape) {
  std::string account = prober.account().text();
  if (shape.cache_bytes > 0) {
    account += fmt::format(", of which data.cache may take {} (data.cache_gib)",
                           format_bytes(shape.cache_bytes));
  }
  const auto peak = prober.peak_with_recompute(options.unit);
  const std::string help =
      peak ? fmt::format("With train.recompute = [\"*\"] it fits, in {}: name blocks there, choose",
                         format_bytes(*peak))
           : "Choose";
  throw Error(Exit::kResource,
              "[batch] micro = \"auto\": not even {} fits in memory: {}. {} a smaller model or "
              "smaller samples, or {}",
              options.unit == 1 ? "one sample" : "one pair of samples", account, help,
              device::more_memory());
}

/// Rank 0's cache is everyone's.
std::optional<int64_t> known_size(distributed::Group& group, const TuningCache& cache,
                                  const std::string& key) {
  const at::Tensor size = at::zeros({1}, at::kLong);
  if (group.is_main()) size.fill_(cache.find(key).value_or(0));
  group.broadcast(size, kProbeAgreement);
  return size.item<int64_t>() > 0 ? std::optional(size.item<int64_t>()) : std::nullopt;
}

}  // namespace

Tuning tune_batch(JobConfig& job, c10::Device device,
                  const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                  const TuneOptions& how) {
  const double start_s = now_s();
  const KeepRandomState keep(device);
  Tuning tuning;
  {
    const DataShape shape = shape_of(job);
    // What the recipe gets wrong is found before the search, which may take minutes.
    if (job.batch.global) build_schedule(job, run_length(job, shape.samples));
    if (device.is_cpu()) require_room_beside_cache(shape.cache_bytes, memory);
    const int64_t parts = data_parts(job.distributed, group->world());
    const int64_t share = share_of_part(job, shape.samples, parts);
    const int64_t unit = job.data.augment.mix.unit(), stages = group->world() / parts;
    // No size is over the share; stages need a micro-batch each.
    const tune::SearchOptions options{.largest = std::max<int64_t>(1, share / unit / stages) * unit,
                                      .unit = unit};
    const bool measures_speed = how.explains || job.batch.objective == tune::Objective::kThroughput;
    Prober prober(job, device, group, memory, shape, share, measures_speed);
    const tune::RunProbe run = [&](int64_t size) {
      const tune::Probe probe = prober.run(size);
      log::info("probe of micro-batch {}: {}", format_count(size),
                probe.fits ? format_bytes(probe.peak_bytes) + " at the peak" : "does not fit");
      return probe;
    };
    const TuningCache cache(group->is_main() ? cache_folder("batch") : std::filesystem::path());
    const std::string key = prober.key();
    if (const auto known = how.is_fresh ? std::nullopt : known_size(*group, cache, key)) {
      const bool is_largest = job.batch.objective != tune::Objective::kThroughput;
      tuning.search = tune::verify_batch(options, *known, is_largest, run);
      tuning.was_known = tuning.search.size > 0;
    }
    if (!tuning.was_known) tuning.search = tune::search_batch(options, run);
    if (tuning.search.size == 0) refuse_to_fit(prober, options, shape);
    tuning.micro = tuning.search.size;
    if (!tuning.was_known) {
      if (job.batch.objective == tune::Objective::kThroughput) {
        tuning.micro = tune::smallest_fast_size(tuning.search, options, run);
      }
      cache.remember(key, tuning.micro);
    }
    tuning.account = prober.account();
    tuning.has_statistics = prober.has_statistics();
    if (how.explains) tuning.recomputed = prober.recomputed(tuning.micro);
    memory.keep_outside(prober.outside_bytes(tuning.micro));
  }
  memory.release_cached();
  memory.reset_peak();
  tuning.seconds = now_s() - start_s;
  return tuning;
}

void take(const Tuning& tuning, int64_t world, JobConfig& job) {
  job.batch.micro = tuning.micro;
  if (!job.batch.global) job.batch.global = tuning.micro * world;
}

nlohmann::json to_json(const Tuning& tuning) {
  nlohmann::json result = {{"micro", tuning.micro},
                           {"largest", tuning.search.size},
                           {"seconds", tuning.seconds},
                           {"was_known", tuning.was_known},
                           {"batch_statistics", tuning.has_statistics},
                           {"probes", nlohmann::json::array()},
                           {"memory", to_json(tuning.account)}};
  for (const tune::Probe& probe : tuning.search.probes) {
    nlohmann::json item = {
        {"micro", probe.size}, {"fits", probe.fits}, {"cap_bytes", probe.cap_bytes}};
    if (probe.predicted_bytes) item["predicted_bytes"] = *probe.predicted_bytes;
    if (probe.fits) {
      item["peak_bytes"] = probe.peak_bytes;
      item["samples_per_s"] = tune::samples_per_s(probe);
    }
    result["probes"].push_back(std::move(item));
  }
  if (tuning.recomputed) {
    const auto& [without, with] = *tuning.recomputed;
    result["recompute"] = {{"micro", with.size},
                           {"peak_bytes", with.peak_bytes},
                           {"peak_bytes_without", without.peak_bytes},
                           {"time_ratio", with.step_s / without.step_s}};
  }
  return result;
}

std::string report(const Tuning& tuning, const JobConfig& job, int64_t world) {
  std::string text = "the batch tuner's probes\n";
  text += fmt::format("{:>9}  {:>10}  {:>10}  {:>10}  {:>11}  {}\n", "micro", "predicted", "peak",
                      "cap", "samples/s", "fits");
  double fastest = 0;
  for (const tune::Probe& probe : tuning.search.probes) {
    const auto bytes = [](int64_t count) { return format_bytes(count); };
    text += fmt::format("{:>9}  {:>10}  {:>10}  {:>10}  {:>11}  {}\n", probe.size,
                        probe.predicted_bytes ? bytes(*probe.predicted_bytes) : "",
                        probe.fits ? bytes(probe.peak_bytes) : "", bytes(probe.cap_bytes),
                        probe.fits ? format_number(tune::samples_per_s(probe)) : "",
                        probe.fits ? "yes" : "no");
    if (probe.fits && !probe.is_disturbed) {
      fastest = std::max(fastest, tune::samples_per_s(probe));
    }
  }
  const auto chosen = tune::probe_of(tuning.search, tuning.micro);
  const int64_t parts = data_parts(job.distributed, world);
  const int64_t share = (*job.batch.global + parts - 1) / parts;
  text += fmt::format(
      "micro-batch {}, of the {} samples that a {} has of the global batch; {:.0f} % of the cap "
      "filled, {} "
      "left; {} in {:.1f} s{}\n",
      tuning.micro, share, parts < world ? "pipeline" : "rank",
      100.0 * static_cast<double>(chosen->peak_bytes) / static_cast<double>(chosen->cap_bytes),
      format_bytes(chosen->cap_bytes - chosen->peak_bytes),
      format_plural(static_cast<int64_t>(tuning.search.probes.size()), "probe"), tuning.seconds,
      tuning.was_known ? "; the size is an earlier job's (trainer tune --fresh searches again)"
                       : "");
  if (tuning.has_statistics && tuning.micro < share) {
    text += fmt::format("batch norms see {} at a time: that size is part of what is learned\n",
                        format_plural(tuning.micro, "sample"));
  }
  text += tuning.account.table();
  if (tuning.recomputed) {
    const auto& [without, with] = *tuning.recomputed;
    text += fmt::format(
        "train.recompute, at micro-batch {}: a peak of {} rather than {}, and {:.2f} times as long "
        "a step\n",
        with.size, format_bytes(with.peak_bytes), format_bytes(without.peak_bytes),
        with.step_s / without.step_s);
  }
  if (!chosen->is_disturbed && tune::samples_per_s(*chosen) < 0.97 * fastest) {
    text += fmt::format(
        "a smaller micro-batch is {:.0f} % faster: objective = \"throughput\" would take it\n",
        100.0 * (fastest / tune::samples_per_s(*chosen) - 1));
  }
  return text;
}

}  // namespace brim::train
