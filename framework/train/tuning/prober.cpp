#include "framework/train/tuning/prober.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/machine.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/device/memory/memory.h"
#include "framework/nn/stage.h"
#include "framework/train/components.h"
#include "framework/train/input_shape.h"
#include "framework/train/inputs.h"
#include "framework/train/stage_plan.h"
#include "framework/train/step/training_step.h"
#include "framework/train/tuning/tuning_cache.h"

namespace brim::train {
namespace {

constexpr int kMaxRepeats = 3;           // of a step whose time other processes disturbed …
constexpr double kDisturbedShare = 0.1;  // … as threads waited for a core so much of it

}  // namespace

Prober::Prober(JobConfig& job, c10::Device device, std::shared_ptr<distributed::Group> group,
               device::Memory& memory, const DataShape& shape, int64_t share, bool measures_speed)
    : job_(job),
      device_(device),
      group_(std::move(group)),
      memory_(memory),
      share_(share),
      parts_(data_parts(job.distributed, group_->world())),
      max_repeats_(measures_speed ? kMaxRepeats : 0),
      shape_(shape),
      probe_job_(job, shape_) {}

tune::Probe Prober::run(int64_t size) {
  probe_job_.set_size(size, micro_batches(size), parts_);
  memory_.release_cached();
  memory_.keep_outside(outside_bytes(size));
  memory_.reset_peak();
  tune::Probe probe{.size = size};
  probe.fits = train(probe);
  if (device_.is_cpu()) {
    const int64_t ring = prefetch_buffer_bytes(job_.data, shape_.sample_bytes, size);
    beside_ = std::max(beside_, memory_.outside_bytes() - ring);
  }
  memory_.keep_outside(outside_bytes(size));
  probe.peak_bytes = memory_.stats().peak_bytes;
  probe.cap_bytes = memory_.stats().cap_bytes;
  return agree(probe);
}

std::optional<Recomputed> Prober::recomputed(int64_t size) {
  if (probe_job_.recompute().empty()) return std::nullopt;
  const int64_t unit = job_.data.augment.mix.unit();
  for (; size >= unit; size = size / 2 / unit * unit) {
    probe_job_.set_recompute({});
    const tune::Probe without = run(size);
    probe_job_.set_recompute(probe_job_.recompute());
    if (without.fits) return Recomputed{without, run(size)};
  }
  return std::nullopt;
}

std::optional<int64_t> Prober::peak_with_recompute(int64_t size) {
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

std::string Prober::key() const {
  const std::string input =
      fmt::format("{}{}", text_of(shape_.input), shape_.input.has_documents ? ", documents" : "");
  return tuning_key(job_, input, device_, probe_job_.grows() ? 0 : share_ * parts_, group_->world(),
                    memory_);
}

/// A second one accumulates. Stages need one each, and hold no more at a time.
int64_t Prober::micro_batches(int64_t size) const {
  const int64_t stages = group_->world() / parts_;
  const int64_t most = probe_job_.grows() ? stages : (share_ + size - 1) / size;
  return std::min(most, stages + 1);
}

/// Batches that are being loaded, and what the data will keep in memory, as much as the recipe
/// allows: on a GPU's host they are no part of what the job may take.
int64_t Prober::outside_bytes(int64_t size) const {
  if (!device_.is_cpu()) return 0;
  return beside_ + prefetch_buffer_bytes(job_.data, shape_.sample_bytes, size) + shape_.cache_bytes;
}

/// False where memory ran out on this rank, or on another one in the middle of a step.
bool Prober::train(tune::Probe& probe) {
  std::optional<TrainingComponents> components;
  const StagePlan stages = plan_stages(job_, device_, *group_, memory_, IfNoneFits::kIgnoreMemory);
  const bool is_stage = !stages.cut.empty();  // which alone may lack room
  const bool is_built = device::fits([&] {
    components = build_components(job_, device_, group_, Weights::kOfRecipe,
                                  knows_room_ || is_stage ? nullptr : &memory_, &stages);
  });
  if (!all(is_built)) {
    account_ = {.peak_bytes = memory_.stats().peak_bytes, .limit_bytes = memory_.limit_bytes()};
    return false;
  }
  knows_room_ = true;
  components->model.stop_waiting_within_passes();
  has_statistics_ = train::has_statistics(nn::whole_of(*components->model.module));
  account_ = memory_account(job_.checkpoint, *components, memory_);
  std::optional<TrainingStep> step;
  const bool has_buckets = device::fits([&] {
    step.emplace(job_, *components, /*finished_steps=*/0, distributed::BucketLayout{}, memory_);
    step->leave_room_for_checkpoint();
  });
  if (!all(has_buckets)) return false;
  const Machine machine;
  for (int i = 0, repeats = 0; i < 2; ++i) {
    memory_.synchronize();
    const double start_s = now_s(), start_delay_s = machine.run_delay_s();
    std::optional<TakenStep> taken;
    const auto take = [&] { taken = step->try_once(); };
    if (group_->is_single_rank()) {
      device::fits(take);  // or memory runs out in the update
    } else {
      take();
    }
    account_.modules = step->account().modules;
    account_.peak_bytes = memory_.stats().peak_bytes;
    if (!taken) return false;
    memory_.synchronize();
    // Forms of operations were measured, and cuDNN has tried its algorithms, with memory that no
    // later step needs.
    if (i == 0) memory_.reset_peak();
    const int64_t passes = *job_.batch.global / parts_ / probe.size;
    const double seconds = now_s() - start_s;
    const double step_s = seconds / static_cast<double>(passes);
    probe.step_s = repeats == 0 ? step_s : std::min(probe.step_s, step_s);
    probe.update_s = taken->record.phase_s[static_cast<size_t>(Phase::kOptimizer)];
    probe.is_disturbed = machine.run_delay_s() - start_delay_s > kDisturbedShare * seconds;
    if (i == 1 && repeats < max_repeats_ && !all(!probe.is_disturbed)) --i, ++repeats;
  }
  const bool is_evaluated = !shape_.has_evaluation() || step->try_evaluation_sums().has_value();
  memory_.synchronize();
  account_.peak_bytes = memory_.stats().peak_bytes;
  if (is_evaluated) fitted_ = account_;
  return is_evaluated;
}

tune::Probe Prober::agree(const tune::Probe& own) {
  const nlohmann::json said = {own.fits,   own.peak_bytes,   own.cap_bytes,
                               own.step_s, stop_requested(), own.is_disturbed};
  tune::Probe result = own;
  bool stops = false;
  for (const std::string& text : group_->all_gather(said.dump(), kProbeAgreement)) {
    const nlohmann::json other = nlohmann::json::parse(text);
    const auto peak = other[1].get<int64_t>(), cap = other[2].get<int64_t>();
    result.fits = result.fits && other[0].get<bool>();
    result.step_s = std::max(result.step_s, other[3].get<double>());
    stops = stops || other[4].get<bool>();
    result.is_disturbed = result.is_disturbed || other[5].get<bool>();
    if (cap - peak < result.cap_bytes - result.peak_bytes) {
      result.cap_bytes = cap;
      result.peak_bytes = peak;
    }
  }
  if (stops) throw Error(Exit::kStopped, "stopped while the batch was tuned: nothing is trained");
  return result;
}

}  // namespace brim::train
