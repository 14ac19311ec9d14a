// Where the trainer's batches come from: this rank's part of the training and evaluation data, as
// the recipe says.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/data/order/rank_partition.h"
#include "framework/data/order/replacement_log.h"
#include "framework/data/transfer/prefetcher.h"
#include "framework/device/memory/memory.h"
#include "framework/train/job.h"

namespace brim::train {

struct Datasets;
struct RankModel;

/// How batches of `dataset` become tensors on the device, images as `dtype`.
data::InputOptions input_options(const data::DataConfig& config, const data::Dataset& dataset,
                                 at::Device device, bool channels_last, at::ScalarType dtype);

/// What batches under way take beside tensors, at most: `micro` samples each.
int64_t prefetch_buffer_bytes(const data::DataConfig& config, int64_t sample_bytes, int64_t micro);

/// Throws Error(kResource) where data.cache, which may take that much, leaves the job nothing.
void require_room_beside_cache(int64_t cache_bytes, const device::Memory& memory);

/// The next batch; null at the end, and where a stop is asked for before it is ready.
const data::DevicePrefetcher::Input* next_unless_stopped(data::DevicePrefetcher& inputs);

/// Belongs to one trainer; all that it is made of outlives it.
class Inputs {
 public:
  Inputs(const JobConfig& job, const Datasets& data, const RankModel& model);

  /// From the step after `finished_steps` on, in passes of at most `micro` samples. `shares`, where
  /// there are some, say how much of each batch is whose.
  std::unique_ptr<data::DevicePrefetcher> training(int64_t finished_steps, int64_t micro,
                                                   std::shared_ptr<data::RankPartition> shares,
                                                   Timeline& timeline) const;
  /// The micro-batches of that step, which training() then gives.
  std::vector<data::BatchPlan> micro_batches(int64_t finished_steps, int64_t micro) const;
  /// All evaluation samples, once, `batch` a rank at a time, in passes of at most `pass`. Which of
  /// them are this rank's follows from `batch` alone.
  std::unique_ptr<data::DevicePrefetcher> evaluation(int64_t batch, int64_t pass,
                                                     Timeline& timeline) const;
  /// The passes that evaluation() then gives.
  std::vector<data::BatchPlan> evaluation_passes(int64_t batch, int64_t pass) const;
  /// What the training samples that could not be read were replaced by, as far as any of the
  /// prefetchers has read ahead.
  data::ReplacementLog& replacements() { return *replacements_; }
  int64_t evaluation_samples() const;
  /// Those of this rank that no evaluation so far could read.
  int64_t left_out() const { return left_out_->unreadable(); }
  /// Samples of such a batch: the recipe's, or `micro` where it gives none.
  int64_t evaluation_batch(int64_t micro) const { return job_.eval.batch.value_or(micro); }

 private:
  data::LoaderOptions share(data::LoaderOptions options) const;
  data::LoaderOptions training_options(int64_t micro) const;
  data::LoaderOptions evaluation_options(int64_t batch, int64_t pass) const;

  const JobConfig& job_;
  const Datasets& data_;
  const RankModel& model_;
  data::InputOptions options_;
  std::shared_ptr<data::ReplacementLog> replacements_ = std::make_shared<data::ReplacementLog>();
  // Of all evaluations: a sample that can't be read is named once.
  std::shared_ptr<data::ReplacementLog> left_out_ = std::make_shared<data::ReplacementLog>();
};

}  // namespace brim::train
