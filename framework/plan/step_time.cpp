#include "framework/plan/step_time.h"

#include <fmt/format.h>

#include <algorithm>

namespace brim::plan {
namespace {

/// `times` (n − 1) / n of the bytes over each link: 2 for a sum, 1 for a gathering or scattering.
double ring_s(int64_t n, double bytes, const Link& link, double times) {
  if (n < 2 || link.bytes_per_s <= 0) return 0;
  const auto ranks = static_cast<double>(n);
  return times * ((ranks - 1) / ranks * bytes / link.bytes_per_s + (ranks - 1) * link.hop_s);
}

double rings_s(const Network& network, const Link& inside, int64_t n, double bytes, double times) {
  const int64_t near = std::min(n, network.ranks_of_machine);
  const int64_t machines = (n + network.ranks_of_machine - 1) / network.ranks_of_machine;
  return ring_s(near, bytes, inside, times) +
         ring_s(machines, bytes / static_cast<double>(near), network.machines, times);
}

double ddp_exposed_s(int64_t ranks, double overlap_s, const ModelBytes& model,
                     const Network& network) {
  const auto bytes = static_cast<double>(model.gradients);
  const double buckets =
      std::max(1.0, bytes / static_cast<double>(std::max<int64_t>(1, model.bucket)));
  const double bucket_s = network.all_reduce_s(ranks, bytes / buckets);
  return std::max(bucket_s, buckets * bucket_s - overlap_s);
}

/// Updated parameters travel while the next step's forward pass waits for them block by block.
double zero1_exposed_s(int64_t ranks, double overlap_s, const ModelBytes& model,
                       const Network& network) {
  const auto units = static_cast<double>(model.units);
  const double unit_s = network.gather_s(ranks, static_cast<double>(model.parameters) / units);
  return std::max(unit_s, units * unit_s - overlap_s);
}

/// Of one micro-batch: gathered twice, scattered once, and summed over the copies.
double fsdp_exposed_s(int64_t ranks, int64_t shards, double forward_s, double backward_s,
                      const ModelBytes& model, const Network& network) {
  const auto units = static_cast<double>(model.units), copies = static_cast<double>(shards);
  const double gather = network.gather_s(shards, static_cast<double>(model.gathered) / units);
  const double scattered = static_cast<double>(model.scattered) / units;
  const double sum = network.scatter_s(shards, scattered) +
                     network.all_reduce_s(ranks / shards, scattered / copies);
  return std::max(gather, units * gather - forward_s) +
         std::max(sum, units * (gather + sum) - backward_s);
}

/// 1F1B and GPipe alike: m micro-batches take m + stages − 1 passes of the slowest stage, and at
/// each boundary the first one's activations and the last one's gradients are waited for; all of
/// them where messages take the cores that compute. Replicas sum during the last backward pass.
void pass_stages(const Strategy& strategy, int64_t ranks, double passes, double ranks_per_core,
                 const ModelBytes& model, const Network& network, const Cut& cut, StepTime& time) {
  const double pass_s = time.compute_s * cut.slowest_share / passes;
  const auto boundaries = static_cast<double>(strategy.stages - 1);
  const double message_s = network.gather.bytes_per_s > 0 ? static_cast<double>(cut.message_bytes) /
                                                                    network.gather.bytes_per_s +
                                                                network.gather.hop_s
                                                          : 0;
  const double idle_passes = std::max(0.0, (passes + boundaries) / ranks_per_core - passes);
  const auto stages = static_cast<double>(strategy.stages);
  ModelBytes stage = model;
  stage.gradients = static_cast<int64_t>(static_cast<double>(model.gradients) / stages);
  time.compute_s = passes * pass_s;
  time.update_s /= stages;
  time.exposed_s =
      idle_passes * pass_s + boundaries * 2 * message_s +
      ddp_exposed_s(ranks / strategy.stages, network.hidden_share * pass_s, stage, network);
  if (network.hidden_share == 0) time.exposed_s += 2 * (passes - 1) * message_s;
}

}  // namespace

const char* name_of(Sharing sharing) {
  constexpr const char* kNames[] = {"ddp", "zero1", "fsdp", "stages"};
  return kNames[static_cast<size_t>(sharing)];
}

std::string Strategy::text() const {
  if (sharing == Sharing::kStages) return fmt::format("stages = {}", stages);
  return shards == 0 ? name_of(sharing) : fmt::format("{}, shards = {}", name_of(sharing), shards);
}

double Network::all_reduce_s(int64_t n, double bytes) const {
  return rings_s(*this, all_reduce, n, bytes, 2);
}
double Network::gather_s(int64_t n, double bytes) const {
  return rings_s(*this, gather, n, bytes, 1);
}
double Network::scatter_s(int64_t n, double bytes) const {
  return rings_s(*this, scatter, n, bytes, 1);
}

StepTime step_time(const Strategy& strategy, int64_t ranks, const Batch& batch, const Work& work,
                   const ModelBytes& model, const Network& network, const Cut& cut) {
  const int64_t micro_batches = (batch.share + batch.micro - 1) / batch.micro;
  const auto passes = static_cast<double>(micro_batches);
  const double longer = batch.recomputes ? 1 + work.recompute_share : 1;
  StepTime time;
  time.compute_s =
      longer * std::max(passes * work.launch_s,
                        passes * work.pass_s + static_cast<double>(batch.share) * work.sample_s);
  time.update_s = work.update_s;
  if (ranks == 1) return time;
  if (strategy.sharing == Sharing::kStages) {
    pass_stages(strategy, ranks, passes, work.ranks_per_core, model, network, cut, time);
    return time;
  }
  const double pass_s = time.compute_s / passes;
  const double backward_s = network.hidden_share * pass_s;
  const double forward_s = network.hidden_share > 0 ? pass_s - backward_s : 0;
  const int64_t shards = strategy.shards == 0 ? ranks : strategy.shards;
  if (strategy.sharing == Sharing::kFsdp) {
    time.exposed_s = passes * fsdp_exposed_s(ranks, shards, forward_s, backward_s, model, network);
    time.update_s /= static_cast<double>(shards);
    return time;
  }
  time.exposed_s = ddp_exposed_s(ranks, backward_s, model, network);
  if (strategy.sharing == Sharing::kZero1) {
    time.exposed_s += zero1_exposed_s(ranks, forward_s, model, network);
    time.update_s /= static_cast<double>(ranks);
  }
  return time;
}

}  // namespace brim::plan
