// The facts of a run with which nothing is wrong, everything recorded: what a test changes one of.
#pragma once

#include "framework/doctor/facts.h"

namespace brim::doctor {

inline RunFacts healthy() {
  RunFacts facts;
  facts.steps = 1000;
  facts.seconds = 100;
  facts.phases.emplace();
  const auto set = [&](Phase phase, double share) {
    (*facts.phases)[static_cast<size_t>(phase)] = {share, share * 0.1, share * 0.12};
  };
  set(Phase::kDataWait, 0.01);
  set(Phase::kCopy, 0.004);
  set(Phase::kTransform, 0.006);
  set(Phase::kForward, 0.32);
  set(Phase::kBackward, 0.55);
  set(Phase::kCommunication, 0.02);
  set(Phase::kOptimizer, 0.06);
  set(Phase::kOther, 0.03);
  facts.step_s = Spread{0.100, 0.095, 0.100, 0.11};
  facts.wanted_per_s = 646;
  facts.given_per_s = 640;
  facts.is_cuda = true;
  facts.busy_percent = Spread{93, 85, 94, 98};
  facts.peak_bytes = 68e9;
  facts.cap_bytes = 80e9;
  facts.host_syncs = 0;
  facts.slowed_share = 0.0;
  facts.has_matrix_units = true;
  facts.precision = "bf16";
  facts.has_convolutions = true;
  facts.is_channels_last = true;
  facts.micro_batch = 64;
  facts.global_batch = 256;
  facts.ranks = 4;
  facts.cores = 16;
  facts.workers = 4;
  facts.cache = "none";
  facts.balance = "even";
  facts.compress = "none";
  facts.prefetch = 2;
  facts.fast_decode = false;
  facts.optimizer = "sgd";
  facts.batch_rule = "none";
  facts.metrics_every = 10;
  facts.histograms_every = 0;
  facts.slowest_rank_ratio = 1.01;
  facts.slowest_rank = 2;
  facts.largest_share_ratio = 1.0;
  facts.swapped_bytes = 0;
  facts.major_faults_per_s = 0.1;
  facts.load_per_core = 0.6;
  facts.io_stalled_percent = 0.5;
  return facts;
}

/// Gives a phase its share, which forward and backward lose.
inline void give(RunFacts& facts, Phase phase, double share) {
  auto& phases = *facts.phases;
  const double before = phases[static_cast<size_t>(phase)].share;
  for (PhaseFacts& other : phases) other.share *= (1 - share) / (1 - before);
  phases[static_cast<size_t>(phase)].share = share;
}

}  // namespace brim::doctor
