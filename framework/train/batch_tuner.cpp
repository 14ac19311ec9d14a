#include "framework/train/batch_tuner.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/data/sources/synthetic.h"
#include "framework/nn/random_state.h"
#include "framework/train/trainer.h"
#include "framework/train/tuning_cache.h"

namespace brim::train {
namespace {

constexpr const char* kAgree = "the agreement on a probe of the batch tuner";

/// What the data feeds a model, how much of it, and whether there is evaluation.
struct DataShape {
  data::ImageShape image;
  int64_t classes = 0;
  int64_t samples = 0;
  bool has_evaluation = false;
};

DataShape shape_of(const JobConfig& job) {
  const auto train = data::as_images(job.data.open_train());
  if (train == nullptr) {
    throw Error(Exit::kRecipe, "[batch] micro = \"auto\" is for data of images; give a number");
  }
  return {train->shape(), train->classes(), train->size(), job.data.open_eval() != nullptr};
}

/// The job on synthetic samples, with nothing that depends on which samples they are, while this
/// lives.
class ProbeJob {
 public:
  ProbeJob(JobConfig& job, const DataShape& shape)
      : job_(job),
        shape_(shape),
        source_(std::exchange(job.data.source, recipe::Slot<data::SourceConfig>(""))),
        pretrained_(std::exchange(job.model.pretrained, {})),
        sampler_(std::exchange(job.data.sampler, {})),
        batch_(job.batch),
        train_(job.train),
        distributed_(job.distributed),
        workers_(job.data.workers) {
    job.data.source.select("synthetic");
    job.data.sampler.sampler.select("shuffled");
    job.train.steps = 2;
    job.distributed.balance = distributed::Balance::kEven;
    // Threads that decode real samples are not what a probe is about.
    job.data.workers = 0;
  }
  ~ProbeJob() {
    job_.data.source = std::move(source_);
    job_.model.pretrained = std::move(pretrained_);
    job_.data.sampler = std::move(sampler_);
    job_.batch = batch_;
    job_.train = train_;
    job_.distributed = distributed_;
    job_.data.workers = workers_;
  }
  ProbeJob(const ProbeJob&) = delete;
  ProbeJob& operator=(const ProbeJob&) = delete;

  bool grows() const { return !batch_.global; }
  void set_recompute(std::vector<std::string> patterns) {
    job_.train.recompute = std::move(patterns);
  }
  /// The recipe's.
  const std::vector<std::string>& recompute() const { return train_.recompute; }
  /// Two micro-batches of `size` a step where the job will accumulate, one where it won't.
  void set_size(int64_t size, int64_t share, int64_t world) {
    auto& synthetic = dynamic_cast<data::SyntheticConfig&>(*job_.data.source.part());
    job_.batch.micro = size;
    const bool accumulates = !grows() && size < share;
    job_.batch.global = (accumulates ? 2 * size : size) * world;
    synthetic.height = shape_.image.height;
    synthetic.width = shape_.image.width;
    synthetic.channels = shape_.image.channels;
    synthetic.classes = shape_.classes;
    synthetic.samples = 2 * *job_.batch.global;
    synthetic.eval_samples = shape_.has_evaluation ? job_.eval.batch.value_or(size) * world : 0;
  }

 private:
  JobConfig& job_;
  DataShape shape_;
  recipe::Slot<data::SourceConfig> source_;
  std::filesystem::path pretrained_;  // weights are as large whatever they are
  data::SamplerSection sampler_;
  BatchConfig batch_;
  TrainConfig train_;
  distributed::DistributedConfig distributed_;
  std::optional<int64_t> workers_;
};

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

class Prober {
 public:
  Prober(JobConfig& job, c10::Device device, std::shared_ptr<distributed::Group> group,
         device::Memory& memory, const DataShape& shape, int64_t share)
      : job_(job),
        device_(device),
        group_(std::move(group)),
        memory_(memory),
        share_(share),
        shape_(shape),
        probe_job_(job, shape_) {}

  tune::Probe run(int64_t size) {
    probe_job_.set_size(size, share_, group_->world());
    memory_.release_cached();
    memory_.leave_for_tensors(beside_ + ring_bytes(size));
    memory_.reset_peak();
    tune::Probe probe{.size = size};
    probe.fits = train(probe);
    if (device_.is_cpu()) {
      beside_ = std::max(beside_, memory_.outside_bytes() - ring_bytes(size));
    }
    memory_.leave_for_tensors(beside_ + ring_bytes(size));
    probe.peak_bytes = memory_.stats().peak_bytes;
    probe.cap_bytes = memory_.stats().cap_bytes;
    return agree(probe);
  }

  /// What the recipe's train.recompute saves and costs: probes with and without it, at the first of
  /// `size`, its half, … that fits both ways. nullopt where none does, or it names no block.
  std::optional<Recomputed> recomputed(int64_t size) {
    if (probe_job_.recompute().empty()) return std::nullopt;
    for (; size >= 1; size /= 2) {
      probe_job_.set_recompute({});
      const tune::Probe without = run(size);
      probe_job_.set_recompute(probe_job_.recompute());
      if (without.fits) return Recomputed{without, run(size)};
    }
    return std::nullopt;
  }

  /// The peak of the smallest size where every block is recomputed; nullopt where it would not fit
  /// either, is so already, or the model has no blocks.
  std::optional<int64_t> peak_with_recompute(int64_t size) {
    probe_job_.set_recompute({"*"});
    tune::Probe probe;
    try {
      probe = run(size);
    } catch (const Error& error) {
      if (error.status() != Exit::kRecipe) throw;  // no blocks
    }
    probe_job_.set_recompute(probe_job_.recompute());
    return probe.fits ? std::optional(probe.peak_bytes) : std::nullopt;
  }

  /// Of the last size that fitted; where none has, of the last one.
  const MemoryAccount& account() const { return fitted_ ? *fitted_ : account_; }
  std::string key() const {
    const std::string input = fmt::format("{}x{}x{}, {} classes", shape_.image.channels,
                                          shape_.image.height, shape_.image.width, shape_.classes);
    return tuning_key(job_, input, device_, probe_job_.grows() ? 0 : share_ * group_->world(),
                      group_->world(), memory_);
  }

 private:
  /// Batches that are being loaded lie in memory of their own: pinned on a GPU's host, and on the
  /// CPU a part of what the job may take.
  int64_t ring_bytes(int64_t size) const {
    return device_.is_cpu() ? (job_.data.prefetch + 2) * size * shape_.image.bytes() : 0;
  }

  /// False where memory ran out on this rank, or on another one in the middle of a step.
  bool train(tune::Probe& probe) {
    std::optional<Parts> parts;
    bool is_built = true;
    try {
      parts = build_parts(job_, device_, group_);
    } catch (const c10::OutOfMemoryError&) {
      is_built = false;
    }
    if (!all(is_built)) {
      account_ = {.peak_bytes = memory_.stats().peak_bytes, .limit_bytes = memory_.limit_bytes()};
      return false;
    }
    account_ = memory_account(*parts, memory_);
    // While a checkpoint is written, its copy lies beside the steps: on the CPU, in their memory.
    const int64_t copy_bytes =
        account_.parameters_bytes + account_.optimizer_bytes + account_.ema_bytes;
    at::Tensor checkpoint;
    try {
      if (device_.is_cpu()) {
        checkpoint = at::empty({copy_bytes}, at::kByte);
        account_.checkpoint_bytes = copy_bytes;
      }
    } catch (const c10::OutOfMemoryError&) {
      is_built = false;
    }
    if (!all(is_built)) return false;
    Trainer trainer(job_, std::move(*parts), TrainState{}, RunFolder{}, memory_);
    for (int step = 0; step < 2; ++step) {
      memory_.synchronize();
      const double start_s = now_s();
      const bool fits = trainer.try_step();
      account_.modules = trainer.account().modules;
      account_.peak_bytes = memory_.stats().peak_bytes;
      if (!fits) return false;
      memory_.synchronize();
      const int64_t passes = *job_.batch.global / group_->world() / probe.size;
      probe.step_s = (now_s() - start_s) / static_cast<double>(passes);
    }
    bool is_evaluated = true;
    if (shape_.has_evaluation) {
      try {
        trainer.evaluation_sums();
        memory_.synchronize();
      } catch (const c10::OutOfMemoryError&) {
        is_evaluated = false;
      }
    }
    account_.peak_bytes = memory_.stats().peak_bytes;
    if (is_evaluated) fitted_ = account_;
    return is_evaluated;
  }

  bool all(bool own) { return !group_->any(!own, kAgree); }

  /// The probe of the rank that has the least memory left, with the longest time.
  tune::Probe agree(const tune::Probe& own) {
    const nlohmann::json said = {own.fits, own.peak_bytes, own.cap_bytes, own.step_s,
                                 stop_requested()};
    tune::Probe result = own;
    bool stops = false;
    for (const std::string& text : group_->all_gather(said.dump(), kAgree)) {
      const nlohmann::json other = nlohmann::json::parse(text);
      const auto peak = other[1].get<int64_t>(), cap = other[2].get<int64_t>();
      result.fits = result.fits && other[0].get<bool>();
      result.step_s = std::max(result.step_s, other[3].get<double>());
      stops = stops || other[4].get<bool>();
      if (cap - peak < result.cap_bytes - result.peak_bytes) {
        result.cap_bytes = cap;
        result.peak_bytes = peak;
      }
    }
    if (stops) throw Error(Exit::kStopped, "stopped while the batch was tuned: nothing is trained");
    return result;
  }

  JobConfig& job_;
  c10::Device device_;
  std::shared_ptr<distributed::Group> group_;
  device::Memory& memory_;
  int64_t share_;
  DataShape shape_;
  ProbeJob probe_job_;
  MemoryAccount account_;  // of the last probe
  std::optional<MemoryAccount> fitted_;
  int64_t beside_ = 0;  // tensors and batches being loaded, on the CPU
};

/// What the tuner asks of probes: pairs stay whole, and no size is over a rank's share, of the
/// global batch or, where that grows too, of the training samples.
tune::SearchOptions search_options(const JobConfig& job, int64_t samples, int64_t world) {
  const int64_t unit = job.data.augment.mix.mixes() ? 2 : 1;
  const int64_t share = job.batch.global ? (*job.batch.global / unit + world - 1) / world * unit
                                         : std::max<int64_t>(1, samples / unit / world) * unit;
  return {.largest = share, .unit = unit};
}

/// Rank 0's cache is everybody's.
std::optional<int64_t> known_size(distributed::Group& group, const TuningCache& cache,
                                  const std::string& key) {
  const at::Tensor size = at::zeros({1}, at::kLong);
  if (group.is_first()) size.fill_(cache.find(key).value_or(0));
  group.broadcast(size, kAgree);
  return size.item<int64_t>() > 0 ? std::optional(size.item<int64_t>()) : std::nullopt;
}

Tuning finished(Tuning tuning, device::Memory& memory, double start_s) {
  memory.release_cached();
  memory.leave_for_tensors();
  tuning.seconds = now_s() - start_s;
  return tuning;
}

}  // namespace

Tuning tune_batch(JobConfig& job, c10::Device device,
                  const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                  const TuneOptions& how) {
  if (job.distributed.sync_batch_norm && !group->is_alone()) {
    throw Error(Exit::kRecipe,
                "[batch] micro = \"auto\" can't be tuned with [distributed] sync_batch_norm on {} "
                "ranks: a rank that runs out of memory in the middle of a pass would leave the "
                "others waiting. Run trainer tune on one rank and give the number",
                group->world());
  }
  const double start_s = now_s();
  const KeepRandomState keep(device);
  Tuning tuning;
  {
    const DataShape shape = shape_of(job);
    const tune::SearchOptions options = search_options(job, shape.samples, group->world());
    Prober prober(job, device, group, memory, shape, options.largest);
    const tune::RunProbe run = [&](int64_t size) { return prober.run(size); };
    const TuningCache cache(group->is_first() ? cache_folder("batch") : std::filesystem::path());
    const std::string key = prober.key();
    if (const auto known = how.is_fresh ? std::nullopt : known_size(*group, cache, key)) {
      tuning.search = tune::verify_batch(options, *known, run);
      tuning.was_known = tuning.search.size > 0;
      tuning.micro = tuning.search.size;
      tuning.account = prober.account();
      if (tuning.was_known && how.explains) tuning.recomputed = prober.recomputed(tuning.micro);
      if (tuning.was_known) return finished(std::move(tuning), memory, start_s);
    }
    tuning.search = tune::search_batch(options, run);
    if (tuning.search.size == 0) {
      const std::string account = prober.account().text();
      const auto peak = prober.peak_with_recompute(options.unit);
      throw Error(
          Exit::kResource,
          "[batch] micro = \"auto\": not even {} fits in memory: {}. {}hoose a smaller model "
          "or smaller samples, or give the job more memory (device.memory_gib)",
          options.unit == 1 ? "one sample" : "one pair of samples", account,
          peak ? fmt::format("With train.recompute = [\"*\"] it fits, in {}: name blocks "
                             "there, c",
                             format_bytes(*peak))
               : "C");
    }
    tuning.micro = tuning.search.size;
    if (job.batch.objective == tune::Objective::kThroughput) {
      tuning.micro = tune::smallest_fast_size(tuning.search, options, run);
    }
    tuning.account = prober.account();
    cache.remember(key, tuning.micro);
    if (how.explains) tuning.recomputed = prober.recomputed(tuning.micro);
  }
  return finished(std::move(tuning), memory, start_s);
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
                        probe.fits ? fmt::format("{:.4g}", tune::samples_per_s(probe)) : "",
                        probe.fits ? "yes" : "no");
    if (probe.fits) fastest = std::max(fastest, tune::samples_per_s(probe));
  }
  const auto chosen = tune::probe_of(tuning.search, tuning.micro);
  text += fmt::format(
      "micro-batch {}, of the {} samples that a rank has of the global batch; {:.0f} % of the cap "
      "filled, {} "
      "left; {} probe{} in {:.1f} s{}\n",
      tuning.micro, (*job.batch.global + world - 1) / world,
      100.0 * static_cast<double>(chosen->peak_bytes) / static_cast<double>(chosen->cap_bytes),
      format_bytes(chosen->cap_bytes - chosen->peak_bytes), tuning.search.probes.size(),
      tuning.search.probes.size() == 1 ? "" : "s", tuning.seconds,
      tuning.was_known ? "; the size is an earlier job's (trainer tune --fresh searches anew)"
                       : "");
  text += tuning.account.table();
  if (tuning.recomputed) {
    const auto& [without, with] = *tuning.recomputed;
    text += fmt::format(
        "train.recompute, at micro-batch {}: a peak of {} rather than {}, and {:.2f} times as long "
        "a step\n",
        with.size, format_bytes(with.peak_bytes), format_bytes(without.peak_bytes),
        with.step_s / without.step_s);
  }
  if (tune::samples_per_s(*chosen) < 0.97 * fastest) {
    text += fmt::format(
        "a smaller micro-batch is {:.0f} % faster: objective = \"throughput\" would take it\n",
        100.0 * (fastest / tune::samples_per_s(*chosen) - 1));
  }
  return text;
}

}  // namespace brim::train
