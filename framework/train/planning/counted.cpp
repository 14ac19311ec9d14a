#include "framework/train/planning/counted.h"

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "framework/base/log.h"
#include "framework/nn/block.h"
#include "framework/nn/sequence.h"
#include "framework/train/inputs.h"
#include "framework/train/planning/planner.h"
#include "framework/train/planning/simulated_rank.h"
#include "framework/train/stage_plan.h"

namespace brim::train {
namespace {

constexpr int64_t kBuiltSamples = 4;    // that a model is built for: two pairs
constexpr int64_t kMaxTried = 1 << 12;  // samples of a rank, where the global batch is tuned
constexpr int64_t kMaxShards = 8;       // of one copy of the model, among more ranks
constexpr int64_t kBeside = 32 << 20;   // that a rank grows by beside tensors and batches
constexpr int64_t kMaxSamples = std::numeric_limits<int64_t>::max();
constexpr int64_t kFewSamples = 64;  // samples, of which the double shows what each keeps

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
  counted.format = precision_name(rank.model().precision);
  counted.has_blocks = !nn::named_blocks(*rank.model().module).empty();
  counted.has_statistics = has_statistics(*rank.model().module);
}

/// Samples of a pass of the evaluation.
int64_t eval_batch(const JobConfig& job, const PlannedRanks& ranks, int64_t micro, int64_t stages) {
  if (!ranks.shape.has_evaluation()) return 0;
  const int64_t parts = ranks.ranks.world / stages;
  const int64_t share = (ranks.shape.eval_samples + parts - 1) / parts;
  return std::min(job.eval.batch.value_or(micro), share);
}

/// What tensors may hold beside the batches being loaded, by micro-batch.
std::map<int64_t, int64_t> caps_of(const JobConfig& job, const PlannedRanks& ranks,
                                   const std::vector<int64_t>& micros) {
  std::map<int64_t, int64_t> caps;
  for (const int64_t micro : micros) {
    const int64_t loading = prefetch_buffer_bytes(job.data, ranks.shape.sample_bytes, micro);
    const int64_t beside = ranks.is_cpu ? loading + ranks.shape.cache_bytes + kBeside : 0;
    caps[micro] = ranks.cap_bytes - beside;
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

/// The ranks of one pipeline, run one after the other.
class Stages {
 public:
  Stages(const JobConfig& job, const PlannedRanks& ranks, StagePlan plan) : plan_(std::move(plan)) {
    for (size_t stage = 0; stage < plan_.cut.size(); ++stage) {
      distributed::Ranks own = ranks.ranks;
      own.rank = static_cast<int64_t>(stage);
      ranks_.push_back(
          std::make_unique<SimulatedRank>(job, own, ranks.is_cpu, *ranks.memory, &plan_));
    }
  }
  const std::vector<size_t>& cut() const { return plan_.cut; }
  /// Of the rank that holds most.
  int64_t peak_bytes(const StepShape& shape) {
    int64_t bytes = 0;
    for (const auto& rank : ranks_) bytes = std::max(bytes, rank->peak_bytes(shape));
    return bytes;
  }

 private:
  StagePlan plan_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
};

plan::Cut cut_of(const StagePlan& plan, int64_t micro) {
  plan::Cut cut{.slowest_share = plan.slowest_share};
  for (const distributed::MessageShape& boundary : plan.boundaries) {
    const int64_t elements = c10::multiply_integers(boundary.sizes);
    const auto bytes = static_cast<int64_t>(c10::elementSize(boundary.type));
    cut.message_bytes = std::max(cut.message_bytes, micro * elements * bytes);
  }
  return cut;
}

/// The job's strategy is the one that is counted.
class Counting {
 public:
  Counting(JobConfig& job, const PlannedRanks& ranks, const CountOptions& options)
      : job_(job),
        ranks_(ranks),
        options_(options),
        global_(job.batch.global),
        caps_(caps_of(job, ranks, options.micros)),
        shares_(shares_of(job, ranks, options)),
        precision_(job, ranks.precision),
        probe_(job, ranks.shape) {
    probe_.set_size(kBuiltSamples, /*micro_batches=*/1, ranks.ranks.world);
    probe_.set_recompute({});
    counted_.unit = job.data.augment.mix.unit();
  }

  void count_one(const plan::Strategy& strategy) {
    auto rank = std::make_unique<SimulatedRank>(job_, ranks_.ranks, ranks_.is_cpu, *ranks_.memory);
    if (strategy.sharing == plan::Sharing::kDdp) count_whole(job_, *rank, counted_);
    if (rank->model().sharded) count_units(job_, *rank->model().sharded, counted_.model);
    for (const int64_t micro : options_.micros) {
      count_recomputes(strategy, {}, micro,
                       [&](const StepShape& shape) { return rank->peak_bytes(shape); });
    }
    if (strategy.sharing == plan::Sharing::kDdp) whole_ = std::move(rank);
  }

  /// After ddp, whose model is cut. A model that is no sequence, or of fewer parts, has no stages.
  void count_stages(const plan::Strategy& strategy) {
    const auto* model = dynamic_cast<nn::Sequence*>(whole_->model().module.get());
    if (model == nullptr || std::ssize(model->parts()) < strategy.stages) return;
    std::unique_ptr<Stages> stages;
    for (const int64_t micro : options_.micros) {
      const int64_t count = micro_batches(strategy, micro);
      if (count < strategy.stages) continue;
      StagePlan plan;
      const int64_t cap_bytes = std::max<int64_t>(1, caps_.at(micro));
      if (!can_be_taken([&] { plan = whole_->cut(micro, count, cap_bytes); })) continue;
      const plan::Cut cut = cut_of(plan, micro);
      if (stages == nullptr || stages->cut() != plan.cut) {
        stages = std::make_unique<Stages>(job_, ranks_, std::move(plan));
      }
      count_recomputes(strategy, cut, micro,
                       [&](const StepShape& shape) { return stages->peak_bytes(shape); });
    }
  }

  /// Throws what every way threw where there is none.
  Counted take() {
    if (counted_.candidates.empty() && refused_) std::rethrow_exception(refused_);
    if (!counted_.candidates.empty()) {
      counted_.unit = std::ranges::min(counted_.candidates, {}, micro_of).batch.micro;
    }
    return std::move(counted_);
  }

 private:
  /// Samples of a rank, or a pipeline, by its stages.
  static std::map<int64_t, int64_t> shares_of(const JobConfig& job, const PlannedRanks& ranks,
                                              const CountOptions& options) {
    std::map<int64_t, int64_t> shares;
    for (const plan::Strategy& strategy : options.strategies) {
      shares[strategy.stages] = ranks.share(job, ranks.ranks.world / strategy.stages);
    }
    return shares;
  }
  int64_t samples(const plan::Strategy& strategy, int64_t micro) const {
    return probe_.grows() ? micro : shares_.at(strategy.stages);
  }
  int64_t micro_batches(const plan::Strategy& strategy, int64_t micro) const {
    return (samples(strategy, micro) + micro - 1) / micro;
  }

  /// Whether the model refuses no way, as batch norms do that see one value: ours by
  /// Error(kRecipe), LibTorch's by its own.
  template <class Attempt>
  bool can_be_taken(const Attempt& attempt) {
    try {
      attempt();
      return true;
    } catch (const Error& error) {
      if (error.status() != Exit::kRecipe) throw;
      if (!refused_) refused_ = std::current_exception();
    } catch (const c10::Error&) {
      if (!refused_) refused_ = std::current_exception();
    }
    return false;
  }

  template <class PeakBytes>
  void count_recomputes(const plan::Strategy& strategy, const plan::Cut& cut, int64_t micro,
                        const PeakBytes& peak_bytes) {
    const int64_t share = samples(strategy, micro);
    for (const std::vector<std::string>& recompute : options_.recomputes) {
      if (!recompute.empty() && !counted_.has_blocks && options_.recomputes.size() > 1) continue;
      const StepShape shape{.micro = micro,
                            .micro_batches = micro_batches(strategy, micro),
                            .recompute = recompute,
                            .eval_batch = eval_batch(job_, ranks_, micro, strategy.stages)};
      int64_t bytes = 0;
      if (!can_be_taken([&] { bytes = peak_bytes(shape); })) continue;
      counted_.candidates.push_back(
          {.strategy = strategy,
           .batch = {micro, share, !recompute.empty()},
           .cut = cut,
           .recompute = recompute,
           .samples = std::min(share * ranks_.ranks.world / strategy.stages,
                               global_.value_or(kMaxSamples)),
           .peak_bytes = bytes,
           .cap_bytes = caps_.at(micro)});
    }
  }

  static int64_t micro_of(const plan::Candidate& candidate) { return candidate.batch.micro; }

  JobConfig& job_;
  const PlannedRanks& ranks_;
  const CountOptions& options_;
  std::optional<int64_t> global_;      // the recipe's
  std::map<int64_t, int64_t> caps_;    // by micro-batch
  std::map<int64_t, int64_t> shares_;  // by stages
  ProbedPrecision precision_;
  ProbeJob probe_;
  std::unique_ptr<SimulatedRank> whole_;
  std::exception_ptr refused_;
  Counted counted_;
};

}  // namespace

int64_t PlannedRanks::share(const JobConfig& job, int64_t parts) const {
  const int64_t unit = job.data.augment.mix.unit();
  if (job.batch.global) return (*job.batch.global / unit + parts - 1) / parts * unit;
  return std::clamp<int64_t>(shape.samples / unit / parts, 1, kMaxTried / unit) * unit;
}

std::vector<plan::Strategy> strategies_of(const JobConfig& job, int64_t world) {
  using plan::Sharing;
  std::vector<plan::Strategy> strategies = {{.sharing = Sharing::kDdp}};
  if (world == 1) return strategies;
  strategies.push_back({.sharing = Sharing::kZero1});
  if (job.optimizer.optimizer->is_element_wise() && !job.distributed.gradients.static_graph) {
    strategies.push_back({.sharing = Sharing::kFsdp});
    for (int64_t shards = 2; shards < world && shards <= kMaxShards; shards *= 2) {
      if (world % shards == 0) strategies.push_back({.sharing = Sharing::kFsdp, .shards = shards});
    }
  }
  const bool may_be_cut = job.batch.global && job.batch.micro && !job.train.cuda_graph &&
                          !job.distributed.sync_batch_norm &&
                          job.distributed.balance == distributed::Balance::kEven;
  for (int64_t stages = 2; may_be_cut && stages <= std::min(world, kMaxShards); stages *= 2) {
    if (world % stages == 0) strategies.push_back({.sharing = Sharing::kStages, .stages = stages});
  }
  return strategies;
}

CountOptions all_ways(const JobConfig& job, const PlannedRanks& ranks) {
  CountOptions options{.recomputes = {{}}, .strategies = strategies_of(job, ranks.ranks.world)};
  const int64_t share = ranks.share(job);
  for (int64_t micro = job.data.augment.mix.unit(); micro < share; micro *= 2)
    options.micros.push_back(micro);
  options.micros.push_back(share);
  const int64_t own = job.batch.micro ? job.batch.micro_or_all() : share;
  if (own < share && std::ranges::find(options.micros, own) == options.micros.end()) {
    options.micros.push_back(own);
  }
  const auto& gradients = job.distributed.gradients;
  if (!gradients.unused_parameters || gradients.static_graph) options.recomputes.push_back({"*"});
  return options;
}

Counted count(JobConfig& job, const PlannedRanks& ranks, const CountOptions& options) {
  Counting counting(job, ranks, options);
  size_t number = 0;
  for (const plan::Strategy& strategy : options.strategies) {
    ++number;
    if (options.is_told) {
      log::info("counting the memory of {} ({} of {})", strategy.text(), number,
                options.strategies.size());
    }
    take(strategy, job);
    if (strategy.sharing == plan::Sharing::kStages) {
      counting.count_stages(strategy);
    } else {
      counting.count_one(strategy);
    }
  }
  return counting.take();
}

}  // namespace brim::train
