#include "framework/train/planning/step_work.h"

#include <ATen/ATen.h>

#include <algorithm>
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

/// The job as probes take it, for a while.
class ProbedJob {
 public:
  ProbedJob(JobConfig& job, const plan::Strategy& strategy, std::vector<std::string> recompute)
      : job_(job),
        distributed_(job.distributed),
        recompute_(std::exchange(job.train.recompute, std::move(recompute))) {
    take(strategy, job);
  }
  ~ProbedJob() {
    job_.distributed = distributed_;
    job_.train.recompute = std::move(recompute_);
  }
  ProbedJob(const ProbedJob&) = delete;
  ProbedJob& operator=(const ProbedJob&) = delete;

 private:
  JobConfig& job_;
  distributed::DistributedConfig distributed_;
  std::vector<std::string> recompute_;
};

/// Ranks take no part in each other's probes; a whole model is that of one rank.
std::shared_ptr<distributed::Group> probe_group(const distributed::Group& group,
                                                const plan::Strategy& strategy) {
  distributed::Ranks ranks = group.ranks();
  if (strategy.sharing != plan::Sharing::kFsdp) ranks.rank = 0, ranks.world = 1;
  return distributed::Group::apart(ranks);
}

}  // namespace

MeasuredWork measure_work(JobConfig& job, c10::Device device,
                          const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                          const DataShape& shape, int64_t share, const ProbeLimits& limits) {
  const bool grows = !job.batch.global;  // with the micro-batch, so that a step is one pass
  const ProbedJob probed(job, limits.strategy, {});
  const auto apart = probe_group(*group, limits.strategy);
  DataShape training = shape;
  training.eval_samples = 0;
  plan::Work work;
  /// Whether a probe fits, and the seconds of its pass; the update's are left out.
  const auto takes = [&](int64_t size, double& pass_s) {
    bool fits = true;
    double step_s = 0, update_s = 0;
    group->all_or_none(kProbes, [&] {
      Prober prober(job, device, apart, memory, training, share, /*measures_speed=*/true);
      const tune::Probe probe = prober.run(size);
      fits = probe.fits;
      const double passes = !grows && size < share ? 2 : 1;
      step_s = probe.step_s - probe.update_s / passes;
      update_s = probe.update_s;
    });
    if (group->any(!fits, kProbes)) return false;
    work.update_s = slowest(*group, update_s);
    pass_s = slowest(*group, std::max(1e-6, step_s));
    return true;
  };
  double small_s = 0;
  if (!takes(limits.unit, small_s)) return {.too_large = limits.unit};
  const auto unit = static_cast<double>(limits.unit);
  int64_t size = limits.unit;
  while (2 * size <= limits.largest &&
         small_s * static_cast<double>(2 * size) / unit <= kLongestPass_s) {
    size *= 2;
  }
  double large_s = small_s;
  if (size > limits.unit && !takes(size, large_s)) return {.too_large = size};
  const auto many = static_cast<double>(size);
  work.sample_s =
      size == limits.unit ? small_s / unit : std::max(0.0, large_s - small_s) / (many - unit);
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
  const ProbedJob probed(job, limits.strategy, job.train.recompute);
  const auto apart = probe_group(*group, limits.strategy);
  DataShape training = shape;
  training.eval_samples = 0;
  bool fits = true;
  group->all_or_none(kProbes, [&] {
    Prober prober(job, device, apart, memory, training, share, /*measures_speed=*/false);
    fits = prober.run(limits.largest).fits;
  });
  return !group->any(!fits, kProbes);
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
