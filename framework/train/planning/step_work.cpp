#include "framework/train/planning/step_work.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "framework/nn/flops.h"
#include "framework/train/observe/measured_peaks.h"
#include "framework/train/planning/planner.h"
#include "framework/train/tuning/prober.h"

namespace brim::train {
namespace {

constexpr const char* kProbes = "the probes of the plan";
constexpr double kLongestPass_s = 2;
constexpr double kEfficiency = 0.4;  // of the peak, as docs/scaling.md takes it
constexpr double kActivationPasses = 5;
constexpr double kWeightPasses = 3;  // forward, and backward for input and weight

double slowest(distributed::Group& group, double own) {
  const at::Tensor value = at::full({1}, own, at::kDouble);
  group.all_reduce(value, distributed::Reduce::kMax, kProbes);
  return value.item<double>();
}

/// The job as probes take it, for a while. Ranks take no part in each other's; a whole model is
/// that of one rank.
class Probes {
 public:
  Probes(JobConfig& job, c10::Device device, const std::shared_ptr<distributed::Group>& group,
         device::Memory& memory, const DataShape& shape, int64_t share,
         const plan::Strategy& strategy, std::vector<std::string> recompute)
      : job_(job),
        device_(device),
        group_(*group),
        memory_(memory),
        shape_(shape),
        share_(share),
        distributed_(job.distributed),
        recompute_(std::exchange(job.train.recompute, std::move(recompute))) {
    take(strategy, job);
    shape_.eval_samples = 0;
    distributed::Ranks ranks = group->ranks();
    if (strategy.sharing != plan::Sharing::kFsdp) ranks.rank = 0, ranks.world = 1;
    apart_ = distributed::Group::apart(ranks);
  }
  ~Probes() {
    job_.distributed = distributed_;
    job_.train.recompute = std::move(recompute_);
  }
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

  /// nullopt on all ranks where it does not fit on any.
  std::optional<tune::Probe> run(int64_t size, bool measures_speed) {
    tune::Probe probe;
    group_.all_or_none(kProbes, [&] {
      probe = Prober(job_, device_, apart_, memory_, shape_, share_, measures_speed).run(size);
    });
    if (group_.any(!probe.fits, kProbes)) return std::nullopt;
    return probe;
  }

 private:
  JobConfig& job_;
  c10::Device device_;
  distributed::Group& group_;
  device::Memory& memory_;
  DataShape shape_;
  int64_t share_;
  distributed::DistributedConfig distributed_;
  std::vector<std::string> recompute_;
  std::shared_ptr<distributed::Group> apart_;
};

}  // namespace

MeasuredWork measure_work(JobConfig& job, c10::Device device,
                          const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                          const DataShape& shape, int64_t share, const ProbeLimits& limits) {
  const bool grows = !job.batch.global;  // with the micro-batch, so that a step is one pass
  Probes probes(job, device, group, memory, shape, share, limits.strategy, {});
  plan::Work work;
  /// Whether a probe fits, and the seconds of its pass; the update's are left out.
  const auto takes = [&](int64_t size, double& pass_s) {
    const auto probe = probes.run(size, /*measures_speed=*/true);
    if (!probe) return false;
    const double passes = !grows && size < share ? 2 : 1;
    work.update_s = slowest(*group, probe->update_s);
    pass_s = slowest(*group, std::max(1e-6, probe->step_s - probe->update_s / passes));
    return true;
  };
  // A probe's synchronized norms see this rank's values alone, and can't normalise a single one.
  const int64_t least = job.distributed.sync_batch_norm ? 2 : 1;
  const int64_t first = std::clamp(least, limits.unit, std::max(limits.unit, limits.largest));
  double small_s = 0;
  if (!takes(first, small_s)) return {.too_large = first};
  const auto unit = static_cast<double>(first);
  int64_t size = first;
  while (2 * size <= limits.largest &&
         small_s * static_cast<double>(2 * size) / unit <= kLongestPass_s) {
    size *= 2;
  }
  double large_s = small_s;
  if (size > first && !takes(size, large_s)) return {.too_large = size};
  const auto many = static_cast<double>(size);
  work.sample_s = size == first ? small_s / unit : std::max(0.0, large_s - small_s) / (many - unit);
  work.sample_s = std::clamp(work.sample_s, 0.1 * large_s / many, large_s / many);
  work.pass_s = std::max(0.0, large_s - many * work.sample_s);
  if (limits.strategy.sharing == plan::Sharing::kFsdp) {
    const int64_t shards = limits.strategy.shards;
    work.update_s *= static_cast<double>(shards == 0 ? group->world() : shards);
  }
  if (limits.recomputes) {
    job.train.recompute = {"*"};
    double again_s = 0;
    if (!takes(size, again_s)) return {.too_large = size};
    work.recompute_share = std::max(0.0, again_s / large_s - 1);
  }
  return {.work = work};
}

bool probe_fits(JobConfig& job, c10::Device device,
                const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                const DataShape& shape, int64_t share, const ProbeLimits& limits) {
  Probes probes(job, device, group, memory, shape, share, limits.strategy, job.train.recompute);
  return probes.run(limits.largest, /*measures_speed=*/false).has_value();
}

DeviceRates measure_rates(distributed::Group& group, c10::Device device, const std::string& format,
                          int64_t cap_bytes) {
  const double flops = measured_product_flops(device, format, Effort::kQuick);
  const double bytes = measured_copy_bytes(device, Effort::kQuick, cap_bytes / 4);
  return {.flops = 1 / slowest(group, 1 / flops),
          .bytes = 1 / slowest(group, 1 / bytes),
          .call_s = slowest(group, measured_call_s(device))};
}

plan::Work estimate_work(const ModelCosts& costs, const DeviceRates& rates) {
  const auto bytes_s = [&](double bytes) { return bytes / rates.bytes; };
  const auto flops = static_cast<double>(costs.flops.all);
  const auto parameters = static_cast<double>(costs.state.parameters_bytes);
  const auto changed = static_cast<double>(costs.state.parameters_bytes +
                                           costs.state.optimizer_bytes + costs.state.ema_bytes);
  plan::Work work;
  work.sample_s =
      std::max(nn::kTrainingPasses * flops / (kEfficiency * rates.flops),
               bytes_s(kActivationPasses * static_cast<double>(costs.activation_bytes)));
  work.pass_s = bytes_s(kWeightPasses * parameters);
  work.launch_s = rates.call_s * static_cast<double>(nn::kTrainingPasses * costs.flops.operators);
  work.recompute_share =
      static_cast<double>(costs.flops.in_blocks) / (nn::kTrainingPasses * std::max(1.0, flops));
  work.update_s = bytes_s(2 * changed + static_cast<double>(costs.state.gradients_bytes));
  return work;
}

}  // namespace brim::train
