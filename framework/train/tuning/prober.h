// Probes of the batch tuner: real training steps of a model that is thrown away afterwards, and
// what memory they took, on all ranks together.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/tuning/probe_job.h"
#include "framework/tune/batch_search.h"

namespace brim::train {

inline constexpr const char* kProbeAgreement = "the agreement on a probe of the batch tuner";

/// Probes of one size without and with train.recompute.
struct Recomputed {
  tune::Probe without, with;
};

/// Every rank makes one and calls the same members in the same order.
class Prober {
 public:
  /// `share` is the part of the global batch that a rank, or a pipeline of ranks, has at most. With
  /// `measures_speed`, steps whose time other processes disturbed are repeated. Throws what
  /// changing the job throws.
  Prober(JobConfig& job, c10::Device device, std::shared_ptr<distributed::Group> group,
         device::Memory& memory, const DataShape& shape, int64_t share, bool measures_speed);

  /// Of the rank that has the least memory left, with the longest time. Throws Error(kStopped)
  /// where a stop was asked for on any rank.
  tune::Probe run(int64_t size);

  /// What the recipe's train.recompute saves and costs: probes with and without it, at the first of
  /// `size`, its half, … that fits both ways. nullopt where none does, or it names no block.
  std::optional<Recomputed> recomputed(int64_t size);

  /// The peak of that size where every block is recomputed; nullopt where it would not fit either,
  /// or the model has no blocks.
  std::optional<int64_t> peak_with_recompute(int64_t size);

  /// Of the last size that fitted; where none has, of the last one.
  const MemoryAccount& account() const { return fitted_ ? *fitted_ : account_; }
  /// Of the model (components.h), once one was built.
  bool has_statistics() const { return has_statistics_; }
  /// What the job will hold beside tensors with micro-batches of `size`, as probes have seen it.
  int64_t outside_bytes(int64_t size) const;
  /// For the cache: what the result depends on.
  std::string key() const;

 private:
  bool train(tune::Probe& probe);
  /// Of a probe's step, each of `size`: as many as make a difference.
  int64_t micro_batches(int64_t size) const;
  bool all(bool own) { return !group_->any(!own, kProbeAgreement); }
  tune::Probe agree(const tune::Probe& own);

  JobConfig& job_;
  c10::Device device_;
  std::shared_ptr<distributed::Group> group_;
  device::Memory& memory_;
  int64_t share_;
  int64_t parts_;    // data_parts()
  int max_repeats_;  // of a step
  DataShape shape_;
  ProbeJob probe_job_;
  MemoryAccount account_;  // of the last probe
  std::optional<MemoryAccount> fitted_;
  bool has_statistics_ = false;
  bool knows_room_ = false;  // for the model itself
  int64_t beside_ = 0;       // tensors and batches being loaded, on the CPU
};

}  // namespace brim::train
