#include "framework/train/planning/planner.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/peak.h"
#include "framework/nn/block.h"
#include "framework/nn/flops.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/measured_peaks.h"
#include "framework/train/planning/counted.h"
#include "framework/train/planning/measured_network.h"
#include "framework/train/planning/plan_record.h"
#include "framework/train/planning/step_work.h"

namespace brim::train {
namespace {

constexpr const char* kPlan = "the plan of the step";
constexpr int64_t kAssumedSamples = 1 << 20;
constexpr double kLaunch_s = 5e-6;    // of a kernel on a GPU that is not here
constexpr int64_t kMoreDevices = 64;  // times as many, at most, are proposed

/// What a GPU makes of a mode, to be counted on the CPU.
amp::PrecisionMode mode_on(c10::Device device, amp::PrecisionMode mode) {
  if (device.is_cpu()) return mode;
  const int capability = device::cuda().backend->compute_capability(device.index());
  const amp::Precision precision =
      amp::resolve(mode, device.type(), {.compute_capability = capability});
  if (precision.compute == at::kBFloat16) return amp::PrecisionMode::kBf16;
  if (precision.compute == at::kHalf) return amp::PrecisionMode::kFp16;
  return precision.compute == at::kDouble ? amp::PrecisionMode::kFp64 : amp::PrecisionMode::kFp32;
}

PlannedRanks ranks_at_hand(const JobConfig& job, c10::Device device, distributed::Group& group,
                           const device::Memory& memory) {
  PlannedRanks ranks{.ranks = group.ranks(), .is_cpu = device.is_cpu(), .memory = &memory};
  group.all_or_none(kPlan, [&] {
    ranks.shape = shape_of(job);
    ranks.precision = mode_on(device, job.precision.mode);
    if (ranks.is_cpu) require_room_beside_cache(ranks.shape.cache_bytes, memory);
  });
  const at::Tensor least = at::full({1}, -memory.stats().cap_bytes, at::kLong);
  group.all_reduce(least, distributed::Reduce::kMax, kPlan);
  ranks.cap_bytes = -least.item<int64_t>();
  ranks.ranks.rank = 0;
  return ranks;
}

/// Of data that need not be there, where the recipe gives their shape.
DataShape assumed_shape(const JobConfig& job) {
  try {
    return shape_of(job);
  } catch (const Error& error) {
    const auto tokens = job.data.source->token_shape();
    if (error.status() != Exit::kData || !tokens) throw;
    log::info("the data are not here: {}", error.what());
    return {.input = {.length = tokens->length,
                      .vocabulary = tokens->vocabulary,
                      .has_documents = tokens->has_documents},
            .sample_bytes = tokens->bytes(),
            .samples = kAssumedSamples,
            .eval_samples = job.eval.enabled ? kAssumedSamples : 0};
  }
}

/// Above 1 where more ranks than cores share these.
double ranks_per_core(const PlannedRanks& ranks) {
  const bool has_own_cores = Machine().allowed_cores() < ::sysconf(_SC_NPROCESSORS_ONLN);
  if (!ranks.is_cpu || has_own_cores) return 1;
  return std::max(1.0, static_cast<double>(ranks.ranks.local_world) / usable_cores());
}

/// `work` is that of a rank beside its neighbours, however it is known.
void set_times(Counted& counted, const PlannedRanks& ranks, plan::Work work,
               const plan::Network& network) {
  work.ranks_per_core = ranks_per_core(ranks);
  for (plan::Candidate& candidate : counted.candidates) {
    candidate.time = plan::step_time(candidate.strategy, ranks.ranks.world, candidate.batch, work,
                                     counted.model, network, candidate.cut);
  }
  plan::rank(counted.candidates);
}

bool any_fits(const Counted& counted) {
  return std::ranges::any_of(counted.candidates, &plan::Candidate::fits);
}

/// In words: "fsdp with micro-batch 1 and all blocks recomputed".
std::string way_of(const plan::Candidate& candidate) {
  return fmt::format("{} with batch.micro = {}{}", candidate.strategy.text(), candidate.batch.micro,
                     candidate.recompute.empty() ? "" : " and train.recompute = [\"*\"]");
}

/// How many devices it takes, and what fits there; nullopt where not even many do.
std::optional<std::pair<int64_t, plan::Candidate>> more_devices(JobConfig& job, PlannedRanks ranks,
                                                                const plan::Candidate& least) {
  const int64_t world = ranks.ranks.world;
  for (int64_t times = 2; times <= kMoreDevices; times *= 2) {
    ranks.ranks.world = times * world;
    CountOptions options{.micros = {least.batch.micro}, .recomputes = {least.recompute}};
    options.strategies = {{.sharing = plan::Sharing::kFsdp}};
    const Counted counted = count(job, ranks, options);
    if (any_fits(counted)) return std::pair(times * world, counted.candidates.front());
  }
  return std::nullopt;
}

/// What leaves tensors less than the cap, in words; "" where nothing does.
std::string room_beside(const PlannedRanks& ranks, const plan::Candidate& candidate) {
  const int64_t bytes = ranks.cap_bytes - candidate.cap_bytes;
  if (bytes == 0) return "";
  return fmt::format(
      " (of the {} that each may take {} are for batches being loaded and the process itself)",
      format_bytes(ranks.cap_bytes), format_bytes(bytes));
}

/// Nothing fits: names the cheapest change after which something does.
[[noreturn]] void refuse(JobConfig& job, const PlannedRanks& ranks, const Counted& counted) {
  const plan::Candidate least =
      *std::ranges::min_element(counted.candidates, {}, &plan::Candidate::missing_bytes);
  if (least.fits()) {
    throw Error(Exit::kResource,
                "no strategy fits in memory with this recipe's batch.micro and train.recompute: "
                "expected tensors of at most {} on each of {}. The cheapest change: {}, {}",
                format_bytes(least.room_bytes()), format_plural(ranks.ranks.world, "device"),
                way_of(least), format_bytes(least.peak_bytes));
  }
  std::string change =
      ranks.is_cpu ? fmt::format(
                         "give the {} of a machine {} more in all (device.memory_gib), or choose a "
                         "smaller model",
                         format_plural(ranks.ranks.local_world, "rank"),
                         format_bytes(least.missing_bytes() * ranks.ranks.local_world))
                   : fmt::format("give each {} more (device.memory_gib), or choose a smaller model",
                                 format_bytes(least.missing_bytes()));
  const bool may_shard = std::ranges::any_of(strategies_of(job, 2), [](const auto& strategy) {
    return strategy.sharing == plan::Sharing::kFsdp;
  });
  const auto more = may_shard ? more_devices(job, ranks, least) : std::nullopt;
  if (more) {
    change = fmt::format("train on {} devices like these, of which each takes {} with fsdp; or {}",
                         more->first, format_bytes(more->second.peak_bytes), change);
  }
  throw Error(
      Exit::kResource,
      "no strategy fits in memory: expected tensors of at most {} on each of {}{}, found {} "
      "to take the least, {}. The cheapest change: {}",
      format_bytes(least.room_bytes()), format_plural(ranks.ranks.world, "device"),
      room_beside(ranks, least), way_of(least), format_bytes(least.peak_bytes), change);
}

/// Probes of single ranks take what ddp or fsdp would.
bool is_probed(const plan::Candidate& candidate) {
  const auto sharing = candidate.strategy.sharing;
  return sharing == plan::Sharing::kDdp || sharing == plan::Sharing::kFsdp;
}

/// What probes may take: the whole model where it fits.
ProbeLimits limits_of(const Counted& counted) {
  ProbeLimits limits{.unit = counted.unit, .recomputes = counted.has_blocks};
  const plan::Candidate* found = nullptr;
  for (const plan::Candidate& candidate : counted.candidates) {
    if (!candidate.fits() || !candidate.recompute.empty()) continue;
    const auto sharing = candidate.strategy.sharing;
    const bool is_better =
        found == nullptr || sharing < found->strategy.sharing ||
        (sharing == found->strategy.sharing && candidate.batch.micro > found->batch.micro);
    if (is_better && is_probed(candidate)) found = &candidate;
  }
  if (found == nullptr) return {.largest = 0};
  limits.strategy = found->strategy;
  limits.largest = found->batch.micro;
  return limits;
}

/// Rank 0's, on all ranks.
ProbeLimits agree(distributed::Group& group, const ProbeLimits& own) {
  const nlohmann::json said = {static_cast<int>(own.strategy.sharing), own.strategy.shards,
                               own.largest, own.unit, own.recomputes};
  const auto all = nlohmann::json::parse(group.broadcast(said.dump(), kPlan));
  return {.strategy = {static_cast<plan::Sharing>(all[0].get<int>()), all[1].get<int64_t>()},
          .largest = all[2].get<int64_t>(),
          .unit = all[3].get<int64_t>(),
          .recomputes = all[4].get<bool>()};
}

/// A probe with `micro` did not fit: that takes more than its memory, and every other way as much
/// more than counted.
void raise_peaks(std::vector<plan::Candidate>& candidates, const plan::Strategy& strategy,
                 int64_t micro) {
  const plan::Candidate* probed = nullptr;
  for (const plan::Candidate& candidate : candidates) {
    if (candidate.strategy != strategy || candidate.batch.micro < micro) continue;
    const bool is_nearer = probed == nullptr || candidate.batch.micro < probed->batch.micro;
    if (candidate.fits() && is_nearer) probed = &candidate;
  }
  if (probed == nullptr) throw Error(Exit::kBug, "no way of the plan was probed");
  const int64_t missing = probed->cap_bytes - probed->peak_bytes + 1;
  for (plan::Candidate& candidate : candidates) candidate.peak_bytes += missing;
}

plan::Work work_at_hand(JobConfig& job, c10::Device device,
                        const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                        const PlannedRanks& ranks, Counted& counted, std::string& basis) {
  for (;;) {
    const ProbeLimits limits = agree(*group, limits_of(counted));
    if (limits.largest == 0) break;
    basis = "measured on these devices by short probes";
    const MeasuredWork measured =
        measure_work(job, device, group, memory, ranks.shape, ranks.share(job), limits);
    if (measured.too_large > 0) {
      if (group->is_main()) raise_peaks(counted.candidates, limits.strategy, measured.too_large);
      continue;
    }
    plan::Work work = measured.work;
    // On a busy machine two probes may differ by nothing. No pass takes less than its calls.
    const double calls = static_cast<double>(nn::kTrainingPasses * counted.costs.flops.operators);
    work.pass_s = std::max(work.pass_s, calls * measured_call_s(device));
    return work;
  }
  // At most with recompute does it fit.
  basis = "estimated from these devices' measured rates: no probe fits";
  const std::string format = group->broadcast(counted.format, kPlan);
  return estimate_work(counted.costs, measure_rates(*group, device, format, ranks.cap_bytes));
}

Counted count_aloud(JobConfig& job, const PlannedRanks& ranks) {
  CountOptions options = all_ways(job, ranks);
  options.is_told = true;
  return count(job, ranks, options);
}

/// Every strategy with the recipe's recompute and its micro-batch, or smaller ones.
Counted count_recipes_way(JobConfig& job, const PlannedRanks& ranks) {
  CountOptions options = all_ways(job, ranks);
  options.recomputes = {job.train.recompute};
  if (job.batch.micro) {
    const int64_t own = std::min(job.batch.micro_or_all(), ranks.share(job));
    std::erase_if(options.micros, [&](int64_t micro) { return micro >= own; });
    options.micros.push_back(own);
  }
  Counted counted = count(job, ranks, options);
  if (!any_fits(counted)) refuse(job, ranks, count(job, ranks, all_ways(job, ranks)));
  return counted;
}

/// The recipe's where a strategy fits with it, else the best one's.
int64_t best_micro(const JobConfig& job, const Counted& counted, int64_t share) {
  const int64_t own = job.batch.micro ? std::min(job.batch.micro_or_all(), share) : 0;
  const bool fits_own = std::ranges::any_of(counted.candidates, [&](const auto& candidate) {
    return candidate.fits() && candidate.batch.micro == own;
  });
  return fits_own ? own : counted.candidates.front().batch.micro;
}

}  // namespace

Plan make_plan(JobConfig& job, c10::Device device, const std::shared_ptr<distributed::Group>& group,
               device::Memory& memory) {
  const double start_s = now_s();
  const PlannedRanks ranks = ranks_at_hand(job, device, *group, memory);
  Counted counted;
  group->all_or_none(kPlan, [&] {
    if (!group->is_main()) return;
    counted = count_aloud(job, ranks);
    if (!any_fits(counted)) refuse(job, ranks, counted);
  });
  Plan plan;
  const plan::Network network = measure_network(*group, device, memory, ranks.cap_bytes);
  const plan::Work work = work_at_hand(job, device, group, memory, ranks, counted, plan.basis);
  group->all_or_none(kPlan, [&] {
    if (!group->is_main()) return;
    if (!any_fits(counted)) refuse(job, ranks, counted);
    set_times(counted, ranks, work, network);
  });
  plan.ranked = std::move(counted.candidates);
  plan.has_statistics = counted.has_statistics;
  plan.seconds = now_s() - start_s;
  return plan;
}

Plan make_assumed_plan(JobConfig& job, const plan::Assumption& assumed,
                       const device::Memory& memory) {
  const double start_s = now_s();
  PlannedRanks ranks{.is_cpu = false, .shape = assumed_shape(job), .memory = &memory};
  ranks.ranks.world = assumed.devices;
  ranks.cap_bytes = job.device.memory_gib > 0
                        ? static_cast<int64_t>(job.device.memory_gib * (1 << 30))
                        : static_cast<int64_t>(job.device.memory_fraction *
                                               static_cast<double>(assumed.memory_bytes));
  ranks.cap_bytes -= device::kCudaLibraries;
  ranks.precision = job.precision.mode;
  if (job.precision.mode == amp::PrecisionMode::kAuto) {
    const bool has_bf16 = device::peak_flops(assumed.gpu, "bf16") > 0;
    ranks.precision = has_bf16 ? amp::PrecisionMode::kBf16 : amp::PrecisionMode::kFp16;
  }
  Counted counted = count_aloud(job, ranks);
  if (!any_fits(counted)) refuse(job, ranks, counted);
  const double peak = device::peak_flops(
      assumed.gpu, job.precision.mode == amp::PrecisionMode::kTf32 ? "tf32" : counted.format);
  if (peak == 0) {
    throw Error(Exit::kRecipe, "[precision] mode: {} does not compute in {}; choose another mode",
                assumed.device, counted.format);
  }
  set_times(counted, ranks,
            estimate_work(counted.costs,
                          {.flops = peak, .bytes = assumed.bytes_per_s, .call_s = kLaunch_s}),
            assumed.between);
  return {.ranked = std::move(counted.candidates),
          .basis = fmt::format("predicted from data sheets for {}, not measured", assumed.text()),
          .has_statistics = counted.has_statistics,
          .seconds = now_s() - start_s};
}

nlohmann::json choose_strategy(JobConfig& job, c10::Device device,
                               const std::shared_ptr<distributed::Group>& group,
                               device::Memory& memory) {
  const PlannedRanks ranks = ranks_at_hand(job, device, *group, memory);
  Counted counted;
  group->all_or_none(kPlan, [&] {
    if (group->is_main()) counted = count_recipes_way(job, ranks);
  });
  const plan::Network network = measure_network(*group, device, memory, ranks.cap_bytes);
  const DeviceRates rates =
      measure_rates(*group, device, group->broadcast(counted.format, kPlan), ranks.cap_bytes);
  nlohmann::json record;
  std::vector<plan::Candidate> ways;
  for (;;) {
    group->all_or_none(kPlan, [&] {
      if (!group->is_main()) return;
      if (!any_fits(counted)) refuse(job, ranks, counted);
      set_times(counted, ranks, estimate_work(counted.costs, rates), network);
      const int64_t micro = best_micro(job, counted, ranks.share(job));
      ways = counted.candidates;
      std::erase_if(ways, [&](const plan::Candidate& other) { return other.batch.micro != micro; });
      plan::rank(ways);
    });
    ProbeLimits chosen{.largest = 0};
    if (group->is_main() && is_probed(ways.front())) {
      chosen = {.strategy = ways.front().strategy, .largest = ways.front().batch.micro};
    }
    chosen = agree(*group, chosen);
    if (chosen.largest == 0 ||
        probe_fits(job, device, group, memory, ranks.shape, ranks.share(job), chosen)) {
      break;
    }
    if (group->is_main()) raise_peaks(counted.candidates, chosen.strategy, chosen.largest);
  }
  if (group->is_main()) {
    record = plan::to_json(ways.front());
    record["why"] = plan::why(ways);
    if (job.batch.micro) {
      record["recipe_micro"] = std::min(job.batch.micro_or_all(), ranks.share(job));
    }
  }
  record = nlohmann::json::parse(group->broadcast(record.dump(), kPlan));
  take_choice(record, job);
  memory.release_cached();
  memory.reset_peak();
  return record;
}

void take(const plan::Strategy& strategy, JobConfig& job) {
  const bool is_fsdp = strategy.sharing == plan::Sharing::kFsdp;
  job.distributed.strategy =
      is_fsdp ? distributed::StrategyKind::kFsdp : distributed::StrategyKind::kDdp;
  job.distributed.zero = strategy.sharing == plan::Sharing::kZero1;
  job.distributed.shards = strategy.shards;
  job.distributed.stages = strategy.stages;
  if (std::ssize(job.distributed.cut) + 1 != strategy.stages) job.distributed.cut.clear();
}

nlohmann::json to_json(const Plan& plan) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const plan::Candidate& candidate : plan.ranked) {
    candidates.push_back(plan::to_json(candidate));
  }
  return {{"basis", plan.basis},
          {"why", plan::why(plan.ranked)},
          {"batch_statistics", plan.has_statistics},
          {"seconds", plan.seconds},
          {"candidates", std::move(candidates)}};
}

}  // namespace brim::train
