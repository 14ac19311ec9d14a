// Where the trainer's batches come from: this rank's part of the training and evaluation data, as
// the recipe says.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/base/timeline.h"
#include "framework/data/prefetcher.h"
#include "framework/data/shares.h"
#include "framework/train/job.h"
#include "framework/train/parts.h"

namespace brim::train {

/// How batches of `dataset` become tensors on the device, images as `dtype`.
data::InputOptions input_options(const JobConfig& job, const data::Dataset& dataset,
                                 at::Device device, bool channels_last, at::ScalarType dtype);

/// Belongs to one trainer; job and parts outlive it.
class Inputs {
 public:
  Inputs(const JobConfig& job, const Parts& parts);

  /// From the step after `finished_steps` on, in passes of at most `micro` samples. `shares`, where
  /// there are some, say how much of each batch is whose.
  std::unique_ptr<data::DevicePrefetcher> training(int64_t finished_steps, int64_t micro,
                                                   std::shared_ptr<data::Shares> shares,
                                                   Timeline& timeline) const;
  /// All evaluation samples, once, by `micro` where the recipe gives no size.
  std::unique_ptr<data::DevicePrefetcher> evaluation(int64_t micro, Timeline& timeline) const;

 private:
  data::LoaderOptions share(data::LoaderOptions options) const;

  const JobConfig& job_;
  const Parts& parts_;
  data::InputOptions options_;
};

}  // namespace brim::train
