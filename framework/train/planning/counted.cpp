#include "framework/train/planning/counted.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/nn/block.h"
#include "framework/train/inputs.h"
#include "framework/train/planning/planner.h"
#include "framework/train/planning/simulated_rank.h"

namespace brim::train {
namespace {

constexpr int64_t kBuiltSamples = 4;     // that a model is built for: two pairs
constexpr int64_t kMostTried = 1 << 12;  // samples of a rank, where the global batch is tuned
constexpr int64_t kMostShards = 8;       // of one copy of the model, among more ranks
constexpr int64_t kBeside = 32 << 20;    // that a rank grows by beside tensors and batches
constexpr int64_t kFewSamples = 64;      // samples, of which the double shows what each keeps

int64_t unit_of(const JobConfig& job) { return job.data.augment.mix.mixes() ? 2 : 1; }

/// Half as many bytes travel where gradients are compressed.
int64_t travelling(const JobConfig& job, int64_t bytes) {
  return job.distributed.gradients.compress == distributed::Compress::kNone ? bytes : bytes / 2;
}

void count_units(const JobConfig& job, const distributed::FullySharded& sharded,
                 plan::ModelBytes& model) {
  model.units = static_cast<int64_t>(sharded.units().size());
  model.gathered = model.scattered = 0;
  for (const distributed::ShardedUnit& unit : sharded.units()) {
    for (const auto& piece : unit.pieces()) {
      const auto bytes = static_cast<int64_t>(piece.whole.nbytes());
      model.gathered += bytes;
      if (piece.gradient_offset >= 0) model.scattered += travelling(job, bytes);
    }
  }
}

void count_whole(const JobConfig& job, SimulatedRank& rank, Counted& counted) {
  const MemoryAccount& state = rank.account();
  counted.model.parameters = state.parameters_bytes;
  counted.model.gradients = travelling(job, state.gradients_bytes);
  counted.model.bucket = static_cast<int64_t>(job.distributed.gradients.bucket_mib * (1 << 20));
  counted.costs.state = state;
  counted.costs.flops = rank.forward_flops();
  const int64_t few = rank.peak_bytes({.micro = kFewSamples});
  counted.costs.activation_bytes =
      (rank.peak_bytes({.micro = 2 * kFewSamples}) - few) / kFewSamples;
  counted.format = precision_name(rank.components().precision);
  counted.has_blocks = !nn::named_blocks(*rank.components().model).empty();
  counted.has_statistics = has_statistics(*rank.components().model);
}

/// Samples of a pass of the evaluation.
int64_t eval_batch(const JobConfig& job, const PlannedRanks& ranks, int64_t micro) {
  if (!ranks.shape.has_evaluation()) return 0;
  const int64_t world = ranks.ranks.world;
  const int64_t share = (ranks.shape.eval_samples + world - 1) / world;
  return std::min(job.eval.batch.value_or(micro), share);
}

/// What tensors may hold beside the batches being loaded, by micro-batch.
std::map<int64_t, int64_t> caps_of(const JobConfig& job, const PlannedRanks& ranks,
                                   const std::vector<int64_t>& micros) {
  std::map<int64_t, int64_t> caps;
  for (const int64_t micro : micros) {
    const int64_t loading = prefetch_buffer_bytes(job, ranks.shape.sample_bytes, micro);
    const int64_t beside = ranks.is_cpu ? loading + ranks.shape.cache_bytes + kBeside : 0;
    caps[micro] = std::max<int64_t>(1, ranks.cap_bytes - beside);
  }
  return caps;
}

/// Changes the job's precision for a while.
class ProbedPrecision {
 public:
  ProbedPrecision(JobConfig& job, amp::PrecisionMode mode)
      : job_(job), before_(std::exchange(job.precision.mode, mode)) {}
  ~ProbedPrecision() { job_.precision.mode = before_; }
  ProbedPrecision(const ProbedPrecision&) = delete;
  ProbedPrecision& operator=(const ProbedPrecision&) = delete;

 private:
  JobConfig& job_;
  amp::PrecisionMode before_;
};

}  // namespace

int64_t PlannedRanks::share(const JobConfig& job) const {
  const int64_t unit = unit_of(job);
  if (job.batch.global) return (*job.batch.global / unit + ranks.world - 1) / ranks.world * unit;
  return std::clamp<int64_t>(shape.samples / unit / ranks.world, 1, kMostTried / unit) * unit;
}

std::vector<plan::Strategy> strategies_of(const JobConfig& job, int64_t world) {
  using plan::Sharing;
  std::vector<plan::Strategy> strategies = {{.sharing = Sharing::kDdp}};
  if (world == 1) return strategies;
  strategies.push_back({.sharing = Sharing::kZero1});
  if (!job.optimizer.optimizer->is_element_wise() || job.distributed.gradients.static_graph) {
    return strategies;
  }
  strategies.push_back({.sharing = Sharing::kFsdp});
  for (int64_t shards = 2; shards < world && shards <= kMostShards; shards *= 2) {
    if (world % shards == 0) strategies.push_back({.sharing = Sharing::kFsdp, .shards = shards});
  }
  return strategies;
}

CountOptions all_ways(const JobConfig& job, const PlannedRanks& ranks) {
  CountOptions options{.recomputes = {{}}, .strategies = strategies_of(job, ranks.ranks.world)};
  const int64_t share = ranks.share(job);
  for (int64_t micro = unit_of(job); micro < share; micro *= 2) options.micros.push_back(micro);
  options.micros.push_back(share);
  const auto& gradients = job.distributed.gradients;
  if (!gradients.unused_parameters || gradients.static_graph) options.recomputes.push_back({"*"});
  return options;
}

Counted count(JobConfig& job, const PlannedRanks& ranks, const CountOptions& options) {
  const std::map<int64_t, int64_t> caps = caps_of(job, ranks, options.micros);
  const int64_t share = ranks.share(job);  // before the job is changed
  Counted counted{.unit = unit_of(job)};
  const ProbedPrecision precision(job, ranks.precision);
  ProbeJob probe(job, ranks.shape);
  probe.set_size(kBuiltSamples, kBuiltSamples, ranks.ranks.world);
  probe.set_recompute({});
  for (const plan::Strategy& strategy : options.strategies) {
    take(strategy, job);
    SimulatedRank rank(job, ranks.ranks, ranks.is_cpu, *ranks.memory);
    if (strategy.sharing == plan::Sharing::kDdp) count_whole(job, rank, counted);
    if (rank.components().sharded) count_units(job, *rank.components().sharded, counted.model);
    const bool has_blocks = !nn::named_blocks(*rank.components().model).empty();
    for (const std::vector<std::string>& recompute : options.recomputes) {
      if (!recompute.empty() && !has_blocks && options.recomputes.size() > 1) continue;
      for (const int64_t micro : options.micros) {
        const StepShape shape{.micro = micro,
                              .accumulates = !probe.grows() && micro < share,
                              .recompute = recompute,
                              .eval_batch = eval_batch(job, ranks, micro)};
        const int64_t samples = probe.grows() ? micro : share;  // of a rank
        counted.candidates.push_back({.strategy = strategy,
                                      .batch = {micro, samples, !recompute.empty()},
                                      .recompute = recompute,
                                      .samples = samples * ranks.ranks.world,
                                      .peak_bytes = rank.peak_bytes(shape),
                                      .cap_bytes = caps.at(micro)});
      }
    }
  }
  return counted;
}

}  // namespace brim::train
